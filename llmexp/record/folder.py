"""A run's folder: every path in it, its event log, and its state, which can be read whenever the writer was killed."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pydantic import BaseModel

from llmexp.errors import RecordError
from llmexp.record.identity import is_alive, is_same, is_visible
from llmexp.record.lock import living_holder
from llmexp.record.paths import folders_in, is_there, names_in
from llmexp.record.reading import read_json_lines, read_text
from llmexp.record.result import RunResult, RunStatus, to_json
from llmexp.record.unreadable_record import unreadable_record
from llmexp.record.writing import now, write_atomically

if TYPE_CHECKING:
    from llmexp.record.shared_parts import SharedParts

PLAN = "plan.json"
RESULT = "result.json"
PREVIOUS = "previous"
TRIALS = "trials"
# The state between two repeats of a run whose driver measures repeats of other runs meanwhile.
WAITING = "waiting"
# In these states a run has not ended.
GOES_ON = ("planned", "running", WAITING)


class RunFolder:
    """The folder outputs/<sweep>/<model>_<method>_<id12>/; its files are append-only or written by rename."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @cached_property
    def sweep(self) -> Path:
        """The folder of its sweep, kept because listings of many runs ask for it again and again."""
        return self.path.parent

    @property
    def plan_path(self) -> Path:
        """The frozen plan, which is written first."""
        return self.path / PLAN

    @property
    def result_path(self) -> Path:
        """The result, which is written last."""
        return self.path / RESULT

    @property
    def events_path(self) -> Path:
        """The log of status changes, one JSON object a line: at, status, and more."""
        return self.path / "events.jsonl"

    @property
    def system_path(self) -> Path:
        """Samples of the machine's load during the run, one JSON object a line: at_s (Unix time), then metrics."""
        return self.path / "system.jsonl"

    def system_of(self, node: int) -> Path:
        """Return the samples file of one machine of the run; its times are by that machine's clock."""
        return self.path / f"system.{node}.jsonl" if node else self.system_path

    @property
    def breakdown_path(self) -> Path:
        """The file that says where the time of the profiled steps went."""
        return self.path / "breakdown.json"

    @property
    def timeline_path(self) -> Path:
        """The file that says when what ran in one profiled step of the first rank."""
        return self.path / "timeline.json"

    @property
    def drivers(self) -> Path:
        """The lock between drivers: only one at a time works in this folder."""
        return self.path / ".drivers"

    @property
    def figures(self) -> Path:
        """The folder with this run's figures."""
        return self.path / "figures"

    def repeat(self, index: int) -> Path:
        """Return the folder of one repeat.

        It holds samples.<rank>.jsonl, log.<rank>.txt, rank.<rank>.json, failure.<rank>.json and trace/.
        """
        return self.path / f"repeat.{index}"

    def repeats(self) -> list[Path]:
        """Return the folders of the repeats begun so far, in order."""
        found = (name.removeprefix("repeat.") for name in names_in(str(self.path)) if name.startswith("repeat."))
        return [self.path / f"repeat.{index}" for index in sorted(filter(str.isdecimal, found), key=int)]

    @property
    def trials_path(self) -> Path:
        """The folder of the short runs that settled the run's plan, such as its batch."""
        return self.path / TRIALS

    def trial(self, index: int) -> RunFolder:
        """Return the folder of one of them, which is a run's folder like this one."""
        return RunFolder(self.trials_path / str(index))

    def trials(self) -> list[RunFolder]:
        """Return the folders of the trials begun so far, in order."""
        begun = sorted(int(path.name) for path in self.trials_path.glob("*") if path.name.isdecimal())
        return [self.trial(index) for index in begun]

    def systems(self) -> list[Path]:
        """Return the samples files of all machines of the run."""
        return sorted(self.path.glob("system*.jsonl"))

    def last_sample_unix_s(self) -> float | None:
        """Return the time of the driver's last sample of its machine, by that machine's clock; None without samples."""
        told = (sample.get("at_s") for sample in read_json_lines(self.system_path) if isinstance(sample, dict))
        return max((float(at_s) for at_s in told if isinstance(at_s, int | float)), default=None)

    def diffs(self) -> list[Path]:
        """Return the files with the uncommitted changes of each dirty checkout, git.<name>.diff."""
        return sorted(self.path.glob("git.*.diff"))

    def rank_processes(self) -> list[psutil.Process]:
        """Return the living processes of this host that the ranks named, also those a container's daemon started."""
        told = [identity for path in self.path.glob("repeat.*/process.*.json") for identity in read_json_lines(path)]
        return [psutil.Process(identity["pid"]) for identity in told if is_visible(identity) and is_alive(identity)]

    def write(self, path: Path, record: BaseModel) -> None:
        """Write one record so that a reader sees all of it or nothing."""
        write_atomically(path, to_json(record))

    def event(self, status: str, **details: Any) -> None:
        """Append a status change.

        The first one of a driver carries its process identity, so that a reader can tell whether it lives.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"at": now(), "status": status, **details}) + "\n"
        with self.events_path.open("a") as file:
            file.write(line)

    def events(self) -> list[dict[str, Any]]:
        """Return all status changes; raises RecordError where a line is not one.

        A last line that was cut off by a kill is left out.
        """
        try:
            return [event for event in read_json_lines(self.events_path) if (event["status"], event["at"])]
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable_record(self.events_path, "list of events", error) from None
        except OSError as error:
            raise RecordError(f"{self.events_path} cannot be read: {error.strerror}") from None

    def result(self, parts: SharedParts | None = None) -> RunResult | None:
        """Return the result, or None where the run has not ended; `parts` are those of the results read before.

        Raises RecordError for a result that this version cannot read, DamagedError for one that no version wrote.
        """
        try:
            result = RunResult.model_validate_json(read_text(f"{self.path}/{RESULT}"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise unreadable_record(self.result_path, "result", error) from None
        except OSError as error:
            raise RecordError(f"{self.result_path} cannot be read: {error.strerror}") from None
        if parts:
            result.environment = parts.shared(result.environment)
            result.what_ran = parts.one("what_ran", result.what_ran)
        return result

    def lost_samples(self, result: RunResult) -> str:
        """Return the name of the first samples file that a successful run has lost; '' where none is missing."""
        if result.status is not RunStatus.SUCCESS:
            return ""
        needed = (
            f"repeat.{index}/samples.{rank}.jsonl"
            for index in range(result.repeats)
            for rank in range(result.processes)
        )
        return next((name for name in needed if not is_there(f"{self.path}/{name}")), "")

    def state(self) -> str:
        """Return 'planned', 'running', 'waiting' between interleaved repeats, or the RunStatus that the run ended with.

        It is 'killed' where the driver died, or went on to another run, without writing a result.
        """
        result = self.result()
        if result:
            return result.status.value
        begun = [event for event in self.events() if event["status"] in ("running", WAITING)]
        if not begun:
            return "planned"
        return str(begun[-1]["status"]) if self._is_driven_by(begun[-1]) else RunStatus.KILLED.value

    def _is_driven_by(self, driver: dict[str, Any]) -> bool:
        """Tell whether a driver lives and still works on this run.

        A driver may have gone on to other runs without writing a result here, for example when the disk was full.
        """
        if not self.drivers.exists():
            return is_alive(driver)
        holder = living_holder(self.drivers)
        return holder is not None and is_same(driver, holder)

    def standing(self, result: RunResult | None) -> tuple[str, str]:
        """Return the state and a listing's remark about it: which samples are lost, or why the run ended so."""
        if result:
            lost = self.lost_samples(result)
            return (
                result.status.value,
                f"{lost} is missing: the same command measures the run again" if lost else result.reason,
            )
        state, events = self.state(), self.events()
        at = str(events[-1]["at"]) if events else ""
        reasons = {"running": f"since {at}", WAITING: f"for its next repeat, since {at}"}
        reasons |= {"killed": f"the driver ended without writing a result; last event at {at}"}
        return state, reasons.get(state, "")


def find_runs(root: Path) -> list[RunFolder]:
    """Return all run folders at or below `root`, in the order of their paths, also those that have lost their plan."""
    if root.parent.name != PREVIOUS and _is_run(str(root)):
        return [RunFolder(root)]
    near = folders_in(str(root))
    far = [path for folder in near if os.path.basename(folder) != PREVIOUS for path in folders_in(folder)]
    found = far if root.name == PREVIOUS else [*near, *far]
    return [RunFolder(path) for path in found if _is_run(path)]


def _is_run(path: str) -> bool:
    return any(is_there(f"{path}/{name}") for name in (PLAN, RESULT))
