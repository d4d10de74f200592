"""A server that says what it was asked, started as vLLM's are: by --port and --kv-transfer-config."""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


class Handler(BaseHTTPRequestHandler):
    """A completion of one token names where its keys lie, as NIXL's does; a stream says what it was asked."""

    protocol_version = "HTTP/1.1"
    config: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        if self.path == "/die":
            os._exit(3)
        told = {"/health": b"", "/metrics": f'of{{role="{self.config["kv_role"]}"}} 1\n'.encode()}
        self._answer(200 if self.path in told else 404, told.get(self.path, b""))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {os.environ['VLLM_API_KEY']}":
            self._answer(401, b"Unauthorized")
        elif len(asked["prompt"]) > 100:
            self._answer(400, b"too long")
        elif not asked.get("stream", True):
            self._answer(200, json.dumps({"choices": [], "kv_transfer_params": self._lies(asked)}).encode())
        else:
            self._stream({"asked": asked, "config": self.config, "cores": os.environ.get("VLLM_CPU_OMP_THREADS_BIND")})

    def _lies(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        if "kv_transfer_params" not in asked:
            return None
        return {"remote_engine_id": self.config["kv_role"], "prefill_was_asked": asked}

    def _stream(self, said: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in (f"data: {json.dumps(said)}\n\n".encode(), b"data: [DONE]\n\n"):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def main() -> None:
    Handler.config = json.loads(sys.argv[sys.argv.index("--kv-transfer-config") + 1])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
