"""A quick server of OpenAI's streamed completions that goes wrong as it is told: faulty_server.py <port> [--fault …].

`--after N` lets it serve N requests well before. `--told FILE` takes the fault of each request from a file, where
there is one. It needs the standard library alone, and takes prompts of token ids.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EVENT_S, SLOW_S = 0.002, 0.03
NO_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _run_out() -> None:
    print(NO_MEMORY, "\n  its traceback goes on", flush=True)
    os._exit(1)


def _never() -> None:
    signal.pause()


def _refuse() -> None:
    print("the server's own key is", os.environ.get("MY_API_KEY", "unknown"))
    sys.exit("ValueError: no such model")


# The signal at which memory runs out.
RUNS_OUT = signal.SIGUSR2
# What happens to the whole server, in the midst of a load and at its start.
OF_ALL: dict[str, Callable[[], None]] = {"dies": _die, "hangs": _stop, "runs out": _run_out}
AT_START: dict[str, Callable[[], None]] = {
    "ends at its start": _refuse,
    "is never ready": _never,
    "runs out at its start": _run_out,
}
# What happens to every second answer, or to all: a status, or another stream.
STATUSES = {"answers 429": 429, "answers 500": 500, "refuses all": 503}
OF_ANSWERS = (*STATUSES, "resets", "keeps silent", "breaks off", "is short", "counts more", "sends more", "repeats")
OF_LOADS = (*OF_ALL, *OF_ANSWERS, "is slow")


@dataclass
class Faulty:
    """The server: how many requests it has had, and what goes wrong."""

    fault: str
    after: int
    told: Path | None
    requests: int = 0
    kept: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's request."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            if head.startswith("get"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            else:
                length = int(head.partition("content-length:")[2].split()[0])
                await self._answer(json.loads(await reader.readexactly(length)), writer)
            await writer.drain()
            if writer not in self.kept:
                writer.close()

    def _fault_now(self) -> str:
        if self.told:
            with suppress(OSError):
                return self.told.read_text()
        return self.fault if self.requests > self.after else ""

    async def _answer(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        fault = self._fault_now()
        if fault in OF_ALL:
            await asyncio.sleep(10 * EVENT_S)
            OF_ALL[fault]()
        if fault in OF_ANSWERS and fault != "refuses all" and self.requests % 2:
            fault = ""
        if fault in STATUSES:
            writer.write(refusal(STATUSES[fault]))
        elif fault == "keeps silent":
            self.kept.append(writer)
        else:
            await _stream(asked, fault, writer)


async def _stream(asked: dict[str, Any], fault: str, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    for place, event in enumerate(events(len(asked["prompt"]), asked["max_tokens"], fault)):
        if place == 2 and fault == "resets":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await writer.drain()
            writer.transport.abort()
            return
        if place == 2 and fault == "breaks off":
            return
        writer.write(b"data: " + event + b"\n\n")
        await asyncio.sleep(SLOW_S if fault == "is slow" else EVENT_S)


def events(prompt: int, tokens: int, fault: str) -> Iterator[bytes]:
    """Yield the events of a stream: a token each, then the usage, then the end."""
    sent = tokens + {"is short": -1, "sends more": 1}.get(fault, 0)
    for place in range(sent):
        finish = "length" if place == sent - 1 else None
        event = json.dumps({"choices": [{"text": f" w{place}", "token_ids": [place], "finish_reason": finish}]})
        yield from [event.encode()] * (2 if fault == "repeats" and place == 1 else 1)
    counted = tokens + 1 if fault == "counts more" else sent
    yield json.dumps({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": counted}}).encode()
    yield b"[DONE]"


def refusal(status: int) -> bytes:
    """Return the whole answer of a request that is refused."""
    body = json.dumps({"error": {"message": f"the fault is {status}"}}).encode()
    return f"HTTP/1.1 {status} No\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


async def _listen(port: int, faulty: Faulty) -> None:
    server = await asyncio.start_server(faulty.serve, "127.0.0.1", port, reuse_address=True, backlog=1000)
    print(f"serving at {port}", flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--fault", choices=["", *AT_START, *OF_LOADS], default="")
    parser.add_argument("--after", type=int, default=0)
    parser.add_argument("--told", type=Path)
    args = parser.parse_args()
    print("starting", flush=True)
    signal.signal(RUNS_OUT, lambda *_: _run_out())
    if args.fault in AT_START:
        AT_START[args.fault]()
    asyncio.run(_listen(args.port, Faulty(args.fault, args.after, args.told)))


if __name__ == "__main__":
    main()
