"""Hooks of `pytest --cpu`: where the tests' time goes, by folder, with the CPU seconds of all that they start."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import pytest
from psutil import Error, Process

COST = "cost"
_BEGAN = pytest.StashKey[tuple[float, float]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Fixtures that a test is the first to ask for are its cost; so is what they have begun since the test before."""
    item.stash[_BEGAN] = (time.monotonic(), cpu_s())
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if call.when == "teardown":
        began_s, began_cpu_s = item.stash[_BEGAN]
        report.user_properties.append((COST, (time.monotonic() - began_s, cpu_s() - began_cpu_s)))
    return report


def cpu_s() -> float:
    """Return the CPU seconds of this process and of all that it has started, whether or not they have ended."""
    ended = (getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in ended) + sum(map(_of_tree, _children("self")))


def _of_tree(pid: str) -> float:
    with suppress(Error):
        times = Process(int(pid)).cpu_times()
        return sum(times[:4]) + sum(map(_of_tree, _children(pid)))
    return 0.0


def _children(pid: str) -> list[str]:
    with suppress(OSError):
        return [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    return []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    folders: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for report in terminalreporter.getreports(""):
        for name, cost in report.user_properties:
            if name == COST:
                folders[_folder(report.nodeid)].append(cost)
    terminalreporter.section("where the time goes")
    rows = [(len(costs), *map(sum, zip(*costs, strict=True)), name) for name, costs in folders.items()]
    for tests, wall_s, used_s, name in sorted(rows, key=lambda row: -row[2]):
        terminalreporter.write_line(f"{name:24}{tests:7}{wall_s:9.1f} s{used_s:9.1f} CPU-s")
    whole = [sum(column) for column in list(zip(*rows, strict=True))[:3]]
    terminalreporter.write_line(f"{'all':24}{whole[0]:7}{whole[1]:9.1f} s{whole[2]:9.1f} CPU-s")


def _folder(nodeid: str) -> str:
    parts = nodeid.partition("::")[0].split("/")
    return "/".join(parts[1:3]) if parts[1] == "launchers" else parts[1] if len(parts) > 2 else "whole runs"
