"""Classify how a repeat ended from its files.

The ranks' own reports come first, then the launcher's, then the bare exit code.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from llmexp.errors import NO_MEMORY
from llmexp.launch.ending import SUCCESS, Ending
from llmexp.record.result import RunStatus
from llmexp.record.samples import RankFailure

# Signals that a rank also gets because another rank ended: from the launcher's clean-up or NCCL's watchdog.
SIGNALS_OF_A_PEERS_END = (signal.SIGTERM, signal.SIGABRT)
# torchrun's report on each failed rank, and the deepspeed launcher's report on a rank that it does not name.
TORCHRUN_FAILURE = re.compile(r"time +: (?P<at>\S+)\n.*\n +rank +: (?P<rank>\d+) .*\n +exitcode +: (?P<code>-?\d+) ")
DEEPSPEED_FAILURE = re.compile(r"exits with return code = (?P<code>-\d+)")
# The supervisor's report on each rank, where ranks are forked.
FORKED_FAILURE = re.compile(r"^rank (?P<rank>\d+) ended with exit code (?P<code>-?\d+)$", re.MULTILINE)
# What the fault handler writes below the last words of C or C++ code that aborts.
ABORTED = "\nFatal Python error: Aborted"
# C++ begins so where nobody caught an exception; the exception's own lines follow.
UNCAUGHT = "terminate called"
PYTHON_ERROR = re.compile(r"^(?:\[rank\d+\]: )?((?:\w+\.)*\w+(?:Error|Exception|Exit)(?::.*)?)$", re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """The end of one repeat as the driver saw it.

    exit_code: of `launcher`, which is given in words. killed_for_memory: whether the kernel killed a process for lack
    of memory meanwhile.
    """

    repeat: Path
    world_size: int
    exit_code: int
    killed_for_memory: bool
    launcher: str = "the launcher"


@dataclass(frozen=True)
class Death:
    """The end of a rank by a signal, and its last words where its own code aborted.

    `rank` is None where the launcher does not say which rank.
    """

    rank: int | None
    signal: int
    words: str = ""

    def __str__(self) -> str:
        who = "a rank" if self.rank is None else f"rank {self.rank}"
        words = f": {self.words}" if self.words else ""
        return f"{who} was killed by {_signal_name(self.signal)}{words}"


def classify(ended: Ended) -> Ending:
    """Decide the status; a failure that explains the others takes precedence."""
    failures, deaths = read_failures(ended.repeat), _deaths(ended.repeat)
    by_kind: dict[str, RankFailure] = {failure.kind: failure for failure in reversed(failures)}
    own = next((death for death in deaths if death.signal not in SIGNALS_OF_A_PEERS_END), None)
    if "oom" in by_kind:
        return _told(by_kind["oom"], RunStatus.OOM)
    if starved := _starved(ended.repeat):
        return Ending(RunStatus.OOM, starved)
    if own:
        return _killed(str(own), own.signal, ended)
    if failures:
        return _told_first(by_kind, failures[0])
    if ended.exit_code == 0:
        return _finished(ended)
    if deaths and not _broke(ended.repeat):
        return _killed(str(deaths[0]), deaths[0].signal, ended)
    if ended.exit_code < 0:
        return _killed(f"{ended.launcher} was killed by {_signal_name(-ended.exit_code)}", -ended.exit_code, ended)
    return Ending(
        RunStatus.FAILED, f"{ended.launcher} ended with exit code {ended.exit_code}: {_last_words(ended.repeat)}"
    )


def read_failures(repeat: Path) -> list[RankFailure]:
    """Return the ranks' own reports in the order of writing, without those that a kill cut off."""
    found = []
    for path in sorted(repeat.glob("failure.*.json"), key=lambda path: path.stat().st_mtime_ns):
        try:
            found.append(RankFailure.model_validate_json(path.read_text()))
        except ValidationError:
            continue
    return found


def _told_first(by_kind: Mapping[str, RankFailure], first: RankFailure) -> Ending:
    """Return what a rank tells that explains the others, else what the first one tells."""
    if "timeout" in by_kind:
        return _told(by_kind["timeout"], RunStatus.TIMEOUT)
    return _told(by_kind.get("hardware", first), RunStatus.FAILED)


def _told(failure: RankFailure, status: RunStatus) -> Ending:
    kind = "hardware: " if failure.kind == "hardware" else ""
    return Ending(status, f"{kind}rank {failure.rank}: {failure.message}", failure)


def _killed(reason: str, number: int, ended: Ended) -> Ending:
    if number == signal.SIGKILL and ended.killed_for_memory:
        return Ending(RunStatus.OOM, f"{reason} by the kernel because host memory ran out")
    return Ending(RunStatus.KILLED, reason)


def _finished(ended: Ended) -> Ending:
    missing = [str(rank) for rank in range(ended.world_size) if not (ended.repeat / f"rank.{rank}.json").exists()]
    if missing:
        return Ending(
            RunStatus.INCOMPLETE,
            f"the launcher succeeded, but rank {', '.join(missing)} left no summary in {ended.repeat.name}",
        )
    return SUCCESS


def _deaths(repeat: Path) -> list[Death]:
    """Return the ranks that a signal ended, with their last words where their own code aborted."""
    return [
        replace(death, words=_native_words(_text(repeat / f"log.{death.rank}.txt")))
        if death.signal == signal.SIGABRT
        else death
        for death in _told_deaths(repeat)
    ]


def _told_deaths(repeat: Path) -> list[Death]:
    """Return the ranks that a signal ended, from the launcher's log.

    Only those of the first second count, because the clean-up killed the rest.
    """
    log = _launchers_say(repeat)
    seen = {
        match["rank"]: (datetime.strptime(match["at"], "%Y-%m-%d_%H:%M:%S"), int(match["code"]))
        for match in TORCHRUN_FAILURE.finditer(log)
    }
    forked = [
        Death(int(match["rank"]), -int(match["code"]))
        for match in FORKED_FAILURE.finditer(log)
        if int(match["code"]) < 0
    ]
    if forked or not seen:
        return forked or [Death(None, -int(match["code"])) for match in DEEPSPEED_FAILURE.finditer(log)]
    first = min(at for at, _ in seen.values())
    early = sorted(
        (at, int(rank), code) for rank, (at, code) in seen.items() if (at - first).total_seconds() <= 1 and code < 0
    )
    return [Death(rank, -code) for _, rank, code in early]


def _starved(repeat: Path) -> str | None:
    """Return the last words of a rank that native code ended for want of memory: such a rank can write no report."""
    for path in _rank_logs(repeat):
        rank = path.suffixes[0].removeprefix(".")
        told = any((repeat / f"{name}.{rank}.json").exists() for name in ("rank", "failure"))
        if not told and NO_MEMORY.search(words := _native_words(_text(path))):
            return f"rank {rank}: {words}"
    return None


def _native_words(log: str) -> str:
    """Return the line that says why C or C++ code ended the process, that of memory first; the last line where none."""
    said, aborted, _ = log.rpartition(ABORTED)
    _, uncaught, about = said.rpartition(UNCAUGHT)
    if uncaught:
        lines = [line.strip() for line in (uncaught + about).splitlines()]
    else:
        lines = (said if aborted else log).splitlines()[-1:]
    what = [line for line in lines if line.startswith("what():")]
    telling = next(filter(NO_MEMORY.search, lines), next(iter(what + lines), ""))
    return telling.removeprefix("what():").strip()


def _broke(repeat: Path) -> bool:
    """Say whether a rank ended by itself before it could write a report, for example where an import fails.

    The other ranks then died of the clean-up.
    """
    log = _launchers_say(repeat)
    return any(
        int(match["code"]) > 0 for accounts in (TORCHRUN_FAILURE, FORKED_FAILURE) for match in accounts.finditer(log)
    )


def _last_words(repeat: Path) -> str:
    """Return the last Python error in the logs of the ranks, else of the launcher, else the last line of either."""
    texts = [_text(path) for path in [*_rank_logs(repeat), *sorted(repeat.glob("log.agent*.txt"))]]
    errors = [error for text in texts for error in _errors(text)[-1:]]
    lines = [line for text in texts for line in text.strip().splitlines()[-1:]]
    return next(iter(errors + lines), "nothing was printed")


def _rank_logs(repeat: Path) -> list[Path]:
    return sorted(repeat.glob("log.[0-9]*.txt"))


def _launchers_say(repeat: Path) -> str:
    return "\n".join(_text(path) for path in sorted(repeat.glob("log.agent*.txt")))


def _errors(text: str) -> list[str]:
    return [error for error in PYTHON_ERROR.findall(text) if "ChildFailedError" not in error]


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
