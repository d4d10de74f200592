"""Measure both sides of `llmexp ab` in turns, each turn by a process of its side, into a sweep of its own."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from llmexp.errors import ConfigError, RecordError
from llmexp.launch.display import say
from llmexp.record.duration import duration
from llmexp.record.folder import PREVIOUS, RunFolder, find_runs
from llmexp.record.lock import LockHeldError, acquire
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.writing import write_atomically
from llmexp.sweep.ab.side import Side
from llmexp.sweep.ab.turns import Measures, SideTurn, TurnBlock, blocks

LOG, ABOUT, _DRIVERS = "ab.log", "ab.json", ".drivers"
# Each turn is one measurement whatever the words say, and its folder is known to be the turn's.
_OF_A_TURN = ("measure.repeats=1", "rerun=all")
_INTERRUPTED = 130


@dataclass(frozen=True)
class MeasuredRow:
    """A row of the words: its name, and the words of its run for each side."""

    name: str
    words: Mapping[Measures, Sequence[str]]


@dataclass(frozen=True)
class TurnSession:
    """What is measured, and where its runs' folders are."""

    sides: Mapping[Measures, Side]
    rows: Sequence[MeasuredRow]
    control: int
    """The row, counted from 1, that the control measures."""
    root: Path
    anew: bool = False
    """Measure the turns again that were measured before."""
    identity: Mapping[str, object] = field(default_factory=dict)
    """What tells its turns from those of another comparison: both sides' code and versions, and the words."""

    def run_of(self, turn: SideTurn) -> RunFolder | None:
        """Return the folder of the run that a turn measured last; None before it."""
        # Other words, with rerun=all, leave another run beside the one of before.
        return max(find_runs(self.root / turn.sweep), key=lambda run: run.path.stat().st_mtime_ns, default=None)


def measure_in_blocks(session: TurnSession, rounds: int) -> list[TurnBlock]:
    """Measure every block that is not whole, and return those that were measured, also those of failed runs.

    A row of which a side fails has no more turns. Raises ConfigError where a side refuses its words.
    """
    planned, done, failed = list(blocks(rounds, len(session.rows), session.control)), [], set[int]()
    progress = _Progress(session, rounds, sum(len(block.turns) for block in planned))
    for block in planned:
        if block.row in failed:
            continue
        if not is_whole(session, block):
            _set_aside(session.root, [session.root / turn.sweep for turn in block.turns])
            for turn in block.turns:
                progress.begin(turn)
                _measure(session, turn)
        progress.end(block)
        done.append(block)
        if not is_whole(session, block):
            failed.add(block.row)
    return done


@contextmanager
def held(session: TurnSession) -> Iterator[None]:
    """Keep the folder for this process within the block, and note in it what is measured there.

    Turns of before are set aside where all are measured anew. Raises ConfigError where another process measures there,
    or where turns of another comparison lie there.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(acquire(session.root / _DRIVERS))
        except LockHeldError as error:
            raise ConfigError(f"{session.root} is being measured by {error}") from None
        if session.anew:
            _set_aside(session.root, session.root.glob("[!.]*"))
        _keep_identity(session)
        yield


def is_whole(session: TurnSession, block: TurnBlock) -> bool:
    """Tell whether all turns of a block were measured to their end."""
    results = [_result(session.run_of(turn)) for turn in block.turns]
    return all(result is not None and result.status is RunStatus.SUCCESS for result in results)


def _keep_identity(session: TurnSession) -> None:
    about = session.root / ABOUT
    with suppress(OSError, ValueError):
        earlier = json.loads(about.read_text())
        if earlier != session.identity and not session.anew:
            differing = [key for key, value in session.identity.items() if earlier.get(key) != value]
            raise ConfigError(
                f"{session.root} has turns of another comparison (other {', '.join(differing)}): give this one another "
                "sweep.name, or rerun=all to measure all of it again"
            )
    write_atomically(about, json.dumps(session.identity, indent=2) + "\n")


def _set_aside(root: Path, folders: Iterable[Path]) -> None:
    """Move what turns left before, so that nothing of it is taken for a measurement of now."""
    left = [folder for folder in folders if folder.is_dir() and folder.name != PREVIOUS]
    if not left:
        return
    place = next(place for number in count(1) if not (place := root / PREVIOUS / str(number)).exists())
    place.mkdir(parents=True)
    for folder in left:
        folder.rename(place / folder.name)


def _result(run: RunFolder | None) -> RunResult | None:
    with suppress(RecordError):
        return run.result() if run else None
    return None


def _measure(session: TurnSession, turn: SideTurn) -> None:
    """Measure a turn; what its process prints is appended to the log."""
    side = session.sides[turn.measures]
    words = [
        *session.rows[turn.row - 1].words[turn.measures],
        *_OF_A_TURN,
        f"sweep.outputs={session.root}",
        f"sweep.name={turn.sweep}",
    ]
    log = session.root / LOG
    with log.open("ab") as file:
        began = file.tell()
        code = _run(side, words, file.fileno())
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    if code and (code != 1 or session.run_of(turn) is None):
        raise ConfigError(f"{side.name} cannot run {' '.join(words)}: {_last_line(log, began)}; {log} has all of it")


def _run(side: Side, words: Sequence[str], output: int) -> int:
    """Run a side's llmexp in a process group of its own; an interrupt reaches it once, and it writes its result."""
    with subprocess.Popen(
        side.command(words),
        cwd=side.folder,
        env=side.environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        process_group=0,
    ) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise


def _last_line(log: Path, began: int) -> str:
    said = log.read_bytes()[began:].decode(errors="replace").strip()
    return said.splitlines()[-1].removeprefix("llmexp: ") if said else "it said nothing"


class _Progress:
    """Lines that say whose turn it is, and about how long the rest takes."""

    def __init__(self, session: TurnSession, rounds: int, turns: int) -> None:
        self._session, self._rounds, self._left = session, rounds, turns
        self._took_s: list[float] = []
        self._began_s = 0.0

    def begin(self, turn: SideTurn) -> None:
        """Say whose turn begins."""
        now_s = time.monotonic()
        if self._began_s:
            self._took_s.append(now_s - self._began_s)
        self._began_s = now_s
        name = self._session.sides[turn.measures].name
        whose = f"control: a once more ({name})" if turn.measures == "control" else f"{turn.measures} ({name})"
        row = self._session.rows[turn.row - 1].name
        say(f"round {turn.round} of {self._rounds} | {row} | {whose}{self._rest()}")

    def end(self, block: TurnBlock) -> None:
        """Count the turns of a block as done."""
        self._left -= len(block.turns)

    def _rest(self) -> str:
        if not self._took_s:
            return ""
        return f" | about {duration(self._left * sum(self._took_s) / len(self._took_s))} left"
