"""The program that starts two servers by one command, and routes requests between them; it ends with the first of both.

Its arguments are a connector, a folder for its files, which whoever started the program removes, how many devices each
server has, and the command of a server with its `--port`, which is this program's: the servers get others, and devices
or cores of their own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

from llmexp.launchers.serving.disaggregated.connectors import Role, flags, variables
from llmexp.launchers.serving.disaggregated.router import Router
from llmexp.machine.accelerators.here import visible_variables
from llmexp.machine.processor import bound_core_numbers, logical_cores
from llmexp.record.port import HOST, Port

ROLES: tuple[Role, Role] = ("prefill", "decode")
# All requests of a burst may wait to be accepted.
BACKLOG = 4096
ENDS_S = 5.0


def command_of(argv: Sequence[str], port: int) -> list[str]:
    """Return a server's command with another port."""
    words = list(argv)
    words[words.index("--port") + 1] = str(port)
    return words


def shares(number: int) -> dict[Role, dict[str, str]]:
    """Return the variables that give each server its devices: so many GPUs, or half of the cores for vLLM's threads.

    One core is left to the client where there are three or more.
    """
    if number:
        names = visible_variables()
        visible = os.environ.get(names[0], "")
        gpus = visible.split(",") if visible else [str(gpu) for gpu in range(2 * number)]
        parts = [gpus[:number], gpus[number : 2 * number]]
        return {role: dict.fromkeys(names, ",".join(part)) for role, part in zip(ROLES, parts, strict=True)}
    every = sorted(bound_core_numbers() or range(logical_cores()))
    cores = every[: max(2, len(every) - 1)]
    halves = [cores[: len(cores) // 2] or cores, cores[len(cores) // 2 :]]
    return {
        role: {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, half))} for role, half in zip(ROLES, halves, strict=True)
    }


async def run(connector: str, folder: Path, devices: int, argv: Sequence[str]) -> int:
    """Serve until a server ends, whose exit code is returned, or SIGTERM comes."""
    port, ports = int(argv[list(argv).index("--port") + 1]), {role: Port(hold=True) for role in ROLES}
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    folder.mkdir(mode=0o700)
    every: list[Process] = []
    for role, own in shares(devices).items():
        env = os.environ | own | variables(connector, Port(hold=False).number)
        words = command_of(argv, ports[role].number) + flags(connector, role, str(folder))
        every.append(await asyncio.create_subprocess_exec(*words, env=env))
    router = Router(connector, ports["prefill"].number, ports["decode"].number)
    async with await asyncio.start_server(router.handle, HOST, port, backlog=BACKLOG):
        code = await _first_end(every, ended)
    await _end(every)
    return code


async def _first_end(every: Sequence[Process], ended: asyncio.Event) -> int:
    waits = [asyncio.ensure_future(one.wait()) for one in every]
    told = asyncio.ensure_future(ended.wait())
    await asyncio.wait([*waits, told], return_when=asyncio.FIRST_COMPLETED)
    codes = [wait.result() for wait in waits if wait.done()]
    for wait in (*waits, told):
        wait.cancel()
    return abs(codes[0]) or 1 if codes else 0


async def _end(every: Sequence[Process]) -> None:
    """End the servers; one that takes long is killed."""
    for one in every:
        if one.returncode is None:
            one.terminate()
    for one in every:
        try:
            await asyncio.wait_for(one.wait(), ENDS_S)
        except TimeoutError:
            one.kill()
            await one.wait()


def main() -> None:
    """Read the arguments, and serve."""
    connector, folder, devices, *argv = sys.argv[1:]
    sys.exit(asyncio.run(run(connector, Path(folder), int(devices), argv)))


if __name__ == "__main__":
    main()
