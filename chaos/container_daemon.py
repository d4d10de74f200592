"""A container daemon without containers.

A program that it runs is no descendant of the process that asked for it, has only the variables that were passed, and
is ended by `rm`. Run it as a file: `serve <socket>` is the daemon; `<socket> run … an-image command` and `<socket> rm
--force <name>` are the client's requests.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

IMAGE = "an-image"
NAME_TAKEN = 125
# A container gets those of the daemon's own variables that begin so, as it would get an image's. A variable that only
# containers may see has this ending.
OF_THE_IMAGE, INSIDE = ("PATH", "CHAOS_"), "_INSIDE"


def serve(path: Path) -> None:
    """Serve clients until this process is ended."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(path.with_suffix(".new")))
    listening.listen()
    path.with_suffix(".new").rename(path)
    running: dict[str, subprocess.Popen[bytes]] = {}
    while True:
        client, _ = listening.accept()
        threading.Thread(target=_answer, args=(client, running), daemon=True).start()


def _answer(client: socket.socket, running: dict[str, subprocess.Popen[bytes]]) -> None:
    with client, contextlib.suppress(OSError):  # a client that was killed receives no answer
        message, outputs, _, _ = socket.recv_fds(client, 1 << 20, 2)
        asked = json.loads(message)
        try:
            code = _remove(asked["words"][-1], running) if asked["words"][0] == "rm" else _run(asked, outputs, running)
        finally:
            for output in outputs:
                os.close(output)
        client.send(bytes([code % 256]))


def _run(asked: dict[str, Any], outputs: list[int], running: dict[str, subprocess.Popen[bytes]]) -> int:
    words, shell = asked["words"], asked["environment"]
    image = words.index(IMAGE)
    name = words[words.index("--name") + 1]
    told = {words[at + 1] for at in range(image) if words[at] == "--env"}
    own = {key.removesuffix(INSIDE): value for key, value in os.environ.items() if key.startswith(OF_THE_IMAGE)}
    env = own | {key: value for key, value in shell.items() if key in told}
    if name in running and running[name].poll() is None:
        os.write(outputs[1], f"the name {name} is in use\n".encode())
        return NAME_TAKEN
    out, err = outputs
    running[name] = subprocess.Popen(
        words[image + 1 :], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
    )
    return running[name].wait()


def _remove(name: str, running: dict[str, subprocess.Popen[bytes]]) -> int:
    if name in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running[name].pid, signal.SIGKILL)
        running[name].wait()
    return 0


def ask(path: str, words: list[str]) -> int:
    """Be the client: send the words, and return the exit code of the program that they start."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
        daemon.connect(path)
        socket.send_fds(daemon, [json.dumps({"words": words, "environment": dict(os.environ)}).encode()], [1, 2])
        return int.from_bytes(daemon.recv(1))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]))
    sys.exit(ask(sys.argv[1], sys.argv[2:]))
