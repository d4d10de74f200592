"""`python -m benchmarks serving` measures how many streams a second the load client takes, beside a bare aiohttp.

The instant server has one core and the client another, the same two for every client, which take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.interval import interval, paired_ratio
from benchmarks.serving_client import AIOHTTP, CLIENTS, OURS

WHOLE, APART = "whole answers", "events apart"
WORDS: dict[str, list[str]] = {WHOLE: [], APART: ["--apart"]}
LEAST = 2.5
Seconds = dict[str, list[float]]


def serving(folder: Path, rounds: int = 10, streams: int = 4000) -> Iterator[Figure]:
    """Measure answers that come at once, then those whose events come one by one."""
    for way, words in WORDS.items():
        wall_s, cpu_s = _rounds(words, rounds, streams)
        for name in CLIENTS:
            rate = interval([streams / one for one in wall_s[name]])
            yield Figure(f"{way}, {name}", "streams/s", rate, rounds)
        for name in CLIENTS:
            if name != OURS:
                floor = LEAST if (way, name) == (WHOLE, AIOHTTP) else None
                over = paired_ratio(wall_s[name], wall_s[OURS])
                yield Figure(f"{way}, streams/s of llmexp over {name}", "x", over, rounds, floor=floor)
                over = paired_ratio(cpu_s[name], cpu_s[OURS])
                yield Figure(f"{way}, CPU time of {name} over llmexp", "x", over, rounds)


def _rounds(words: list[str], rounds: int, streams: int) -> tuple[Seconds, Seconds]:
    """Return wall and CPU seconds of each client, each in a fresh process, in turn; every other round backwards."""
    server_core, client_core = sorted(os.sched_getaffinity(0))[-2:]
    wall_s: Seconds = {name: [] for name in CLIENTS}
    cpu_s: Seconds = {name: [] for name in CLIENTS}
    with server_on(server_core, words) as port:
        for place in range(rounds):
            for name in list(CLIENTS)[:: -1 if place % 2 else 1]:
                found = _client(name, port, streams, client_core)
                wall_s[name].append(found["wall_s"])
                cpu_s[name].append(found["cpu_s"])
    return wall_s, cpu_s


def _client(name: str, port: int, streams: int, core: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.serving_client", name, str(port), str(streams), str(core)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextmanager
def server_on(core: int, words: list[str]) -> Iterator[int]:
    """Give the port of an instant server on one core."""
    command = [sys.executable, "-m", "llmexp.launchers.serving.client.instant_server", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            os.sched_setaffinity(server.pid, {core})
            assert server.stdout
            yield int(server.stdout.readline())
        finally:
            server.kill()
