"""The content of a run's folder in the terms that trackers share; this module only reads files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from llmexp.errors import RecordError
from llmexp.record.folder import GOES_ON, PREVIOUS, TRIALS, RunFolder
from llmexp.record.naming import distinguishing_overrides, name_of
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult
from llmexp.record.samples import Sample, read_samples
from llmexp.record.spans import TimeSpan
from llmexp.record.trackers.choices import chosen
from llmexp.record.trackers.files import files_below
from llmexp.record.trackers.kept import KeptWeights, kept_weights
from llmexp.record.trackers.points import (
    Point,
    Window,
    answer_points,
    breakdown_points,
    predicted_points,
    result_points,
    sample_points,
    series_points,
    system_points,
)
from llmexp.record.trackers.spans import spans_of

LONGEST_VALUE = 500
T = TypeVar("T")


class UnreadableError(RecordError):
    """The error for a folder whose records hold what no version of llmexp writes."""


class RunContent:
    """One run, which has ended or goes on; it reads the plan at once and the rest when asked.

    Raises RecordError where the folder is not a run's.
    """

    def __init__(self, folder: RunFolder, state: str, result: RunResult | None = None) -> None:
        self.folder, self.state, self._result = folder, state, result
        self.plan = RunPlan.read(folder.plan_path)

    @property
    def name(self) -> str:
        """The model, the method and all other words of what is measured, as any other run may stand beside it there."""
        return name_of(self.plan.name_fields.values(), self.words)

    @property
    def words(self) -> list[str]:
        """The words of its command that tell it from others of its model and method."""
        return distinguishing_overrides(self.plan.overrides, self.plan.name_fields)

    @property
    def id(self) -> str:
        """The plan's id."""
        return self.plan.id

    @property
    def sweep(self) -> str:
        """The sweep's name."""
        return self.plan.config.sweep.name

    @cached_property
    def digest(self) -> str:
        """A digest that changes when the run is measured again, ends otherwise, or gets other figures."""
        figures = sorted((path.name, path.stat().st_size) for path in self.folder.figures.glob("*"))
        result = self.folder.result_path.read_bytes() if self._result else b""
        return hashlib.sha256(result + repr((self.state, figures)).encode()).hexdigest()[:16]

    @cached_property
    def window(self) -> Window:
        """The time of the run: from its result, else from its first event to its last sign of life."""
        if self._result and self._result.started_at and self._result.ended_at:
            return Window(_unix_s(self._result.started_at), _unix_s(self._result.ended_at))
        at = [_unix_s(event["at"]) for event in self.folder.events()] or [self.folder.plan_path.stat().st_mtime]
        return Window(at[0], max([*at, self._last_sign_s()]))

    def _last_sign_s(self) -> float:
        """Return the Unix time of the last sign of life, by the clock of the driver's machine.

        It is by the file server's clock where there are no samples, or they do not say their time, as in older runs.
        """
        steps = [
            sample.at_s for path in self.folder.path.glob("repeat.*/samples.0.jsonl") for sample in _samples(path)[-1:]
        ]
        told = [at_s for at_s in (*steps, self.folder.last_sample_unix_s()) if at_s is not None]
        if told and None not in steps:
            return max(told)
        return max((path.stat().st_mtime for path in self.folder.path.glob("repeat.*/*.*")), default=0.0)

    @property
    def tags(self) -> dict[str, str]:
        """The tags: the run in words, for people and their searches."""
        result = self._result
        config = self.plan.config
        groups = {
            "task": config.task.name,
            "hardware": config.hardware.name,
            "engine": config.engine.name,
            "sweep": config.sweep.name,
        }
        plain = {"id": self.id, "folder": self.folder.path.name} | self.plan.name_fields | groups
        plain |= {"status": self.state, "reason": self._reason}
        measured = {"stack": result.stack, "evidence": result.evidence} if result else {}
        if result and result.stability:
            measured |= {
                "stability": result.stability.verdict,
                "stability_reasons": result.stability.words,
            }
            measured |= {"concurrent_runs": _cut("; ".join(result.stability.concurrent_runs))}
        return {name: value for name, value in (plain | measured).items() if value}

    @property
    def commit(self) -> str | None:
        """The commit of llmexp's checkout; None where it was installed otherwise."""
        commit: str | None = ((self.environment.get("git") or {}).get("llmexp") or {}).get("commit")
        return commit

    @property
    def note(self) -> str:
        """The text at the top of the run's page, in Markdown."""
        reason = f": {self._reason}" if self._reason else ""
        judged = self._result.stability if self._result else None
        reason += f"\n\n**{judged.verdict}**: {judged.words}" if judged and judged.reasons else ""
        return f"**{self.state}**{reason}\n\nRepeat it with\n\n    {self.plan.rerun_command}\n"

    @property
    def _reason(self) -> str:
        if self._result:
            return self._result.reason
        return "" if self.state in GOES_ON else "interrupted before its result was written"

    @property
    def params(self) -> dict[str, str]:
        """What identifies the run and what was chosen for it; the whole configuration is among its files.

        They are known before the run starts, and stay the same.
        """
        values = chosen(self.plan) | {"world_size": self.plan.processes, "devices": self.plan.devices}
        values |= self.plan.params
        return {re.sub(r"[^\w\-. /]", "_", key)[:250]: _cut(value) for key, value in values.items()}

    @property
    def environment(self) -> dict[str, Any]:
        """The environment that the run was measured on; empty where the run ended before recording it."""
        return self._result.environment if self._result else {}

    @cached_property
    def kept(self) -> list[KeptWeights]:
        """The weights that the run kept."""
        return kept_weights(self.folder, self._result)

    @property
    def means(self) -> dict[str, float]:
        """The means of what was measured."""
        return {name: metric.mean for name, metric in (self._result.metrics if self._result else {}).items() if metric}

    def points(self) -> list[Point]:
        """Return all values of all metrics, final ones first, as a run's page lists them; raises UnreadableError."""
        return [*self.finals(), *self.series()]

    def finals(self) -> list[Point]:
        """Return the values that the run has once: its metrics, and the shares of profiled steps."""
        return self._read(
            lambda: [
                *result_points(self._result, self.window),
                *predicted_points(self.plan, self._result, self.window),
                *breakdown_points(self.folder, self.window),
            ]
        )

    def series(self) -> list[Point]:
        """Return the values over steps: of samples, of the machine, of further answers; raises UnreadableError."""
        return self._read(
            lambda: [
                *answer_points(self._result, self.window),
                *sample_points(self.folder, self.plan, self.window),
                *series_points(self.folder, self.plan, self.window),
                *(point for path in self.folder.systems() for point in system_points(path, self.window)),
            ]
        )

    def spans(self) -> list[TimeSpan]:
        """Return the pieces of work that a trace shows; raises UnreadableError."""
        return self._read(lambda: spans_of(self.folder, self.plan, self.window))

    def _read(self, made: Callable[[], list[T]]) -> list[T]:
        try:
            return made()
        except (OSError, ValueError, TypeError, LookupError, ArithmeticError) as error:
            raise UnreadableError(f"{self.folder.path} is not copied: {error!r}") from None

    def files(self) -> list[Path]:
        """Return all files of this attempt that a server takes.

        Earlier attempts and trials are left out, and weights, which are models of their own.
        """
        weights = tuple(f"{each.folder.relative_to(self.folder.path).as_posix()}/" for each in self.kept)
        left_out = (f"{PREVIOUS}/", f"{TRIALS}/", *weights)
        return [path for name, path in files_below(self.folder.path).items() if not name.startswith(left_out)]


def attempt_at(folder: RunFolder) -> str:
    """Return what tells this attempt at a run from earlier and later ones: when it began, and in which process."""
    first = next(iter(folder.events()), {})
    return f"{first.get('at', '')} {first.get('pid', '')}".strip()


def read(folder: RunFolder) -> RunContent | None:
    """Read an ended run; None where it is planned or still running."""
    result = folder.result()
    state = result.status.value if result else folder.state()
    return None if state in GOES_ON else RunContent(folder, state, result)


def _samples(path: Path) -> list[Sample]:
    try:
        return read_samples(path, Sample)
    except ValueError:  # it is reported where the points are read
        return []


def _cut(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _unix_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
