"""A program that answers as docker does: its daemon, and not the client, is above the processes of a container.

The daemon is started by a test, beside and not below what is tested. A container is whatever the command after the
image is, with the port that it publishes in the place of {inside}.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def daemon(place: Path) -> None:
    """Start a process for each request in the folder, and end those whose request was taken away."""
    containers: dict[str, subprocess.Popen[bytes]] = {}
    while True:
        for asked in place.glob("*.run"):
            if asked.stem not in containers:
                argv = json.loads(asked.read_text())
                containers[asked.stem] = subprocess.Popen(argv, start_new_session=True)
                _write(place / f"{asked.stem}.pid", str(containers[asked.stem].pid))
        for name in [name for name, each in containers.items() if _is_over(place / f"{name}.run", each)]:
            code = containers.pop(name).wait()
            (place / f"{name}.run").unlink(missing_ok=True)
            _write(place / f"{name}.code", str(code))
        time.sleep(0.01)


def run(place: Path, words: list[str]) -> int:
    name, published = _after(words, "--name"), _after(words, "--publish")
    command = words[words.index("image") + 1 :]
    if "absent" in command:
        print("Error response from daemon: No such image: image", file=sys.stderr)
        return 125
    port = published.split(":")[1]
    _write(place / f"{name}.port", f"80/tcp -> 127.0.0.1:{port}")
    _write(place / f"{name}.run", json.dumps([port if word == "{inside}" else word for word in command]))
    # The real client sends SIGTERM on, and a container may take its time: the end of the client ends nothing here.
    while not (place / f"{name}.code").exists():
        time.sleep(0.01)
    return int((place / f"{name}.code").read_text())


def _is_over(asked: Path, process: subprocess.Popen[bytes]) -> bool:
    if not asked.exists():
        process.kill()
    return process.poll() is not None or not asked.exists()


def _after(words: list[str], word: str) -> str:
    return words[words.index(word) + 1]


def _write(path: Path, text: str) -> None:
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(text)
    scratch.rename(path)


def main() -> int:
    place, verb, *words = Path(sys.argv[1]), *sys.argv[2:]
    with (place / "calls").open("a") as calls:
        calls.write(f"{' '.join([verb, *words])}\n")
    if verb == "daemon":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        daemon(place)
    if verb == "run":
        return run(place, words)
    name = words[-1]
    if verb == "rm":
        (place / f"{name}.run").unlink(missing_ok=True)
        return 0
    path = place / f"{words[0] if verb == 'port' else name}.{'port' if verb == 'port' else 'pid'}"
    if path.exists():
        print(path.read_text())
    return 0 if path.exists() else 1


if __name__ == "__main__":
    sys.exit(main())
