"""A run as a row: what its plan says, how it stands or ended, and what it measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from llmexp.analysis.sameness import DoneTraining
from llmexp.record.folder import RunFolder
from llmexp.record.plan import PROGRAM, RunPlan
from llmexp.record.result import Metric, RunResult, RunStatus, Stability
from llmexp.registry import get_task

if TYPE_CHECKING:
    from llmexp.record.shared_parts import SharedParts

HERE = "here"
OOM = RunStatus.OOM.value
# These words describe a measurement that cannot be relied on, by its verdict.
DOUBTS = {"unstable": "unstable", "unknown": "stability unknown"}


@dataclass(frozen=True)
class Row:
    """A run as planned, with its result where it has one; tasks may have their own kind of row.

    `state` is 'planned', 'running', 'waiting' for its next repeat, or a RunStatus.
    """

    folder: RunFolder
    plan: RunPlan
    state: str
    reason: str
    result: RunResult | None

    @cached_property
    def comparison_key(self) -> dict[str, str]:
        """The work that runs must share for their rates to be compared, by the names that a heading uses."""
        return self.plan.comparison_key

    @property
    def done(self) -> dict[str, Any]:
        """The work of one sample, whatever hardware, engine, ranks or runtime do it.

        Runs that differ in it did not do the same.
        """
        return {
            name: value
            for name, value in self.comparison_key.items()
            if name not in ("hardware", "engine", "ranks", "runtime")
        }

    @property
    def id(self) -> str:
        """The plan's id."""
        return self.plan.id

    @property
    def name(self) -> str:
        """The name, such as the method, that is compared with others of the same work."""
        return list(self.plan.name_fields.values())[-1]

    @property
    def hardware(self) -> str:
        """The hardware's name."""
        return self.plan.config.hardware.name

    @property
    def processes(self) -> int:
        """The number of ranks in all."""
        return self.plan.processes

    @property
    def command(self) -> str:
        """The shell line that repeats the run."""
        return self.plan.rerun_command

    @cached_property
    def words(self) -> list[str]:
        """The words of that line."""
        return [*PROGRAM, *self.plan.overrides]

    @property
    def is_control(self) -> bool:
        """Tell whether the run repeats another run of the sweep as its control."""
        return self.plan.config.control

    @property
    def distributions(self) -> dict[str, str]:
        """Versions of the packages installed where the ranks ran; empty before the run has ended."""
        return dict(self.result.environment.get("distributions", {})) if self.result else {}

    def metric(self, name: str) -> Metric | None:
        """Return a metric of a run that was measured to its end; None for every other run."""
        return self.result.metrics.get(name) if self.result and self.state == RunStatus.SUCCESS else None

    @cached_property
    def rate(self) -> Metric | None:
        """The metric that says how fast the run was."""
        return self.metric(self.plan.rate)

    @property
    def asked_training(self) -> dict[str, str]:
        """The settings that decide what is learned, in the order of their names; empty where a task trains nothing."""
        return {}

    @property
    def trained(self) -> DoneTraining | None:
        """What the run did as a training; None where its task is none, or where it was not measured to its end."""
        return None

    @property
    def stability(self) -> Stability | None:
        """The verdict on the measurement; None where there is none."""
        return self.result.stability if self.result and self.state == RunStatus.SUCCESS else None

    @property
    def doubt(self) -> str:
        """The reason why the measurement cannot be relied on, or why that is not known; empty where neither applies."""
        judged = self.stability
        return f"{DOUBTS[judged.verdict]}: {judged.words}" if judged and judged.verdict in DOUBTS else ""


def read_row(folder: RunFolder, parts: SharedParts | None = None) -> Row:
    """Read a run's folder at any moment of its life; raises RecordError where its files are not valid.

    `parts` are those of the rows read before, which this row shares.
    """
    plan, result = RunPlan.read(folder.plan_path, parts), folder.result(parts)
    state, reason = folder.standing(result)
    if result and result.status is RunStatus.SUCCESS and result.evidence != "measured":
        state, reason = result.evidence, f"{result.evidence}, not measured"
    kind = get_task(plan.config.task.name).row_type
    return kind(folder, plan, state, " ".join(reason.split()), result)
