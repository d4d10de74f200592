"""The process that follows one run: `python -m llmexp.record.mlflow.follower`, told on standard input what and where.

What it could not send stays in the run's folder, which the copy at the run's end reads anyway. So it keeps no more than
what it is about to send, and tries again later.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from llmexp.errors import LlmexpError
from llmexp.record.folder import GOES_ON, RunFolder
from llmexp.record.mlflow.gained import Gained
from llmexp.record.mlflow.tracker import Tracker, opened
from llmexp.record.process import die_with_parent
from llmexp.record.trackers.content import RunContent, attempt_at
from llmexp.record.trackers.points import Point
from llmexp.schema import TrackingConfig

EVERY_S, LONGEST_PAUSE_S = 3.0, 60.0
# Of one core, on average: a long run's batches come less often rather than cost more.
LARGEST_CPU_SHARE = 0.01
# Ranks that share its cores come first.
NICENESS = 10


class Following:
    """One run on its way to the tracker."""

    def __init__(self, folder: RunFolder, tracking: TrackingConfig) -> None:
        self._folder, self._tracking = folder, tracking
        self._attempt, self._run_id = "", ""
        self._gained: Gained | None = None
        self._unsent: list[Point] = []

    def send(self) -> bool:
        """Send what the run has gained, and begin its record first where it has none; False where it has not begun.

        Raises LlmexpError, OSError, and ValueError where the folder holds what no run writes.
        """
        if not self._has_begun():
            return False
        deadline_s = time.monotonic() + self._tracking.timeout_s
        with opened(self._tracking, self._folder.path.parents[1], deadline_s) as tracker:
            if self._gained is None or attempt_at(self._folder) != self._attempt:
                self._begin(tracker)
            if self._gained:
                self._unsent = self._unsent or self._gained.points()
                tracker.add(self._run_id, self._unsent)
                self._unsent = []
        return True

    def _begin(self, tracker: Tracker) -> None:
        attempt, content = attempt_at(self._folder), RunContent(self._folder, "running")
        self._run_id, known = tracker.begin(content)
        self._attempt, self._unsent = attempt, []
        self._gained = Gained(self._folder, content.plan, content.window, known)
        if not known and (page := tracker.page_of(self._run_id)):
            _say(f"{self._folder.path.name} in MLflow: {page}")

    def _has_begun(self) -> bool:
        """Tell whether an attempt has come to its first repeat: only then is its plan settled."""
        return self._folder.state() in GOES_ON and bool(self._folder.repeats())


def follow(send: Callable[[], bool], goes_on: Callable[[], bool], name: str, pause: Callable[[float], bool]) -> None:
    """Send again and again, until a pause is told to end; the first time that sending fails, one line says so.

    Pauses grow with failures and with work, that of the first batch apart, which has to import MLflow.
    """
    pause_s, has_said, has_sent = EVERY_S, False, False
    while goes_on():
        began_s, spent_s = time.process_time(), 0.0
        try:
            did = send()
            pause_s, spent_s = EVERY_S, (time.process_time() - began_s) * has_sent
            has_sent |= did
        except (LlmexpError, OSError, ValueError, LookupError) as error:
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if not has_said:
                _say(f"llmexp: {name} is not seen in MLflow while it goes on: {error}; it is copied when it ends")
            has_said = True
        if pause(max(pause_s, spent_s / LARGEST_CPU_SHARE)):
            return


def main() -> int:
    """Follow the run until the driver ends this process, or is gone itself."""
    die_with_parent()
    pause = _ended_by(signal.SIGTERM)
    os.nice(NICENESS)
    parent, told = os.getppid(), json.load(sys.stdin)
    folder = RunFolder(Path(told["folder"]))
    following = Following(folder, TrackingConfig.model_validate(told["tracking"]))
    follow(following.send, lambda: os.getppid() == parent, folder.path.name, pause)
    return 0


def _ended_by(number: signal.Signals) -> Callable[[float], bool]:
    """Return a pause of some seconds that a signal ends, also one that came before; it says whether one did.

    A handler that raised an error would do so in the middle of whatever runs, where it may be lost.
    """
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    signal.signal(number, lambda *_: None)
    return lambda seconds: bool(select.select([told], [], [], seconds)[0])


def _say(text: str) -> None:
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
