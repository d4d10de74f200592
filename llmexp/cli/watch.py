"""A live picture of runs, read from their folders: a bar for each, how those that ended did, and the time left."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.cli.arguments import OUTPUTS, runs_in
from llmexp.record.digits import rounded
from llmexp.record.duration import duration
from llmexp.record.index import RunOverview, overviews
from llmexp.record.reading import plain
from llmexp.record.sweep_order import waiting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Reading the folders takes a few milliseconds of a core that may be measured.
EVERY_S = 5.0
# The pace is that of the last minutes, as runs differ.
PACE_S = 180.0
MOST_LINES, BAR = 30, 20
GOES_ON = ("planned", "running", "queued")


@dataclass(frozen=True)
class Line:
    """A run in the picture: its name, the share that is done, its state, and its rate or why it has none."""

    name: str
    done: float
    state: str
    told: str

    @property
    def goes_on(self) -> bool:
        """Tell whether the run has not ended."""
        return self.state in GOES_ON


@dataclass
class Watch:
    """The runs below some paths, looked at again and again; `clock` gives seconds."""

    paths: Sequence[Path]
    clock: Callable[[], float] = time.monotonic
    _seen: deque[tuple[float, float]] = field(default_factory=deque)

    def look(self) -> list[Line]:
        """Read where every run stands; raises ConfigError where there is none."""
        folders = runs_in(self.paths)
        found = [
            Line(f"{folder.sweep.name}/{folder.path.name}", _done(standing), standing.state, _told(standing))
            for folder, standing in zip(folders, overviews(folders), strict=True)
        ]
        begun = {folder.path for folder in folders}
        later = [run for sweep in dict.fromkeys(folder.sweep for folder in folders) for run in waiting(sweep, begun)]
        found += [Line(f"{run.parent.name}/{run.name}", 0.0, "planned", "") for run in later]
        now_s = self.clock()
        self._seen.append((now_s, sum(line.done for line in found)))
        while now_s - self._seen[0][0] > PACE_S:
            self._seen.popleft()
        return found

    def headline(self, lines: Sequence[Line]) -> str:
        """Say how many runs have ended, and how, and about how long the rest will take at the pace so far."""
        ended = Counter(line.state for line in lines if not line.goes_on)
        how = ", ".join(f"{count} {state}" for state, count in ended.most_common())
        said = f"{ended.total()} of {len(lines)} run{'s' * (len(lines) > 1)} ended" + f": {how}" * bool(how)
        left_s = self._left_s(len(lines))
        return said + (f" · about {duration(left_s)} left" if left_s else "")

    def _left_s(self, runs: int) -> float | None:
        (first_s, before), (last_s, done) = self._seen[0], self._seen[-1]
        if done <= before or done >= runs:
            return None
        return (runs - done) * (last_s - first_s) / (done - before)


def watch(*paths: str | Path, every_s: float = EVERY_S) -> None:
    """Show a live picture of the runs below the paths, `outputs` without any, until all have ended or Ctrl-C.

    It works on a terminal and in a notebook, beside the command that measures. Raises ConfigError without a run.
    """
    from rich.console import Console

    show([Path(path) for path in paths or (OUTPUTS,)], Console(), every_s)


def show(paths: Sequence[Path], console: Console, every_s: float = EVERY_S) -> None:
    """Show the picture on a console, and look again every so many seconds until all runs have ended."""
    from rich.live import Live

    watched = Watch(paths)
    lines = watched.look()
    with Live(_table(watched, lines), console=console, auto_refresh=False) as live:
        while any(line.goes_on for line in lines):
            time.sleep(every_s)
            lines = watched.look()
            live.update(_table(watched, lines), refresh=True)


def _table(watched: Watch, lines: Sequence[Line]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=watched.headline(lines), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_header=False
    )
    for line in _shown(lines):
        full = round(BAR * line.done)  # told apart without colors too
        bar = "█" * full + "░" * (BAR - full)
        table.add_row(Text(plain(line.name)), bar, line.state, Text(plain(line.told)))
    return table


def _shown(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines that fit a screen: of many runs those that go on first, then the last that ended."""
    if len(lines) <= MOST_LINES:
        return lines
    under_way = [line for line in lines if line.goes_on and line.done] or [line for line in lines if line.goes_on]
    ended = [line for line in lines if not line.goes_on]
    return [*ended[-(MOST_LINES // 2) :], *under_way[: MOST_LINES // 2]]


def _done(standing: RunOverview) -> float:
    """Return the share of a run that is done; a run that has ended is done, however it did."""
    if standing.state not in GOES_ON:
        return 1.0
    of_repeat = min(1.0, standing.samples / standing.planned_samples) if standing.planned_samples else 0.0
    within = of_repeat if standing.repeats < standing.planned_repeats else 0.0
    return min(1.0, (standing.repeats + within) / max(1, standing.planned_repeats))


def _told(standing: RunOverview) -> str:
    if standing.rate:
        return f"{rounded(standing.rate)}/s"
    return "" if standing.state in ("planned", "running") else standing.reason
