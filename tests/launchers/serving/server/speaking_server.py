"""A small server that speaks OpenAI's streamed completions; words on its command line make it misbehave."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """It answers /health, /die?<code>, and streams the prompt's words back."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, word = self.path.partition("?")
        if path == "/die":
            print("last words", flush=True)
            os._exit(int(word))
        status = 200 if path == "/health" and "unhealthy" not in sys.argv else 503
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


def main() -> None:
    port = int(sys.argv[1])
    if "silent" in sys.argv:
        signal.pause()
    if "dies" in sys.argv:
        sys.exit("no such model")
    if "clashes" in sys.argv and not os.path.exists(sys.argv[-1]):
        open(sys.argv[-1], "w").close()
        sys.exit("OSError: [Errno 98] Address already in use")
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in sys.argv:
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
        print(json.dumps({"child": child.pid}), flush=True)
    if "plain" in sys.argv:
        ThreadingHTTPServer.allow_reuse_address = False
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print("serving", socket.gethostname(), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
