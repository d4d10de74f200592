"""Which runs stand beside which lines of the paper's tables, and in what they differ from the paper's runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from llmexp.paper.printed import SEQ_LEN, WORLD_SIZE
from llmexp.paper.printed.breakdowns import HARDWARE, MODELS, PaperFigure
from llmexp.paper.training.cell import settings_unlike
from llmexp.paper.training.step_times.measured import MeasuredTimes
from llmexp.record.breakdown import RunBreakdown
from llmexp.record.result import RunStatus
from llmexp.report.breakdown.parts import breakdown_of
from llmexp.schema.model import SizedModel
from llmexp.training.report.row import TrainingRow

SWEEP = "paper_modules"
"""The sweep of the paper's experiments on where time goes: its runs are shown beside the paper's wherever they ran."""
# Lines of one table differ in these.
_WITHIN = ("model", "batch")


@dataclass(frozen=True)
class Place:
    """Runs of one machine, engine and configuration; of the paper's models all, of another model only its own."""

    rows: tuple[TrainingRow, ...]

    @property
    def name(self) -> str:
        """Where these runs ran."""
        row = self.rows[0]
        models = ", ".join(dict.fromkeys(each.model for each in self.rows))
        ranks = f"{row.processes} rank{'s' * (row.processes > 1)}"
        return f"{models} on {row.hardware}, {ranks}, {row.comparison_key['engine']}, {row.comparison_key['precision']}"

    def run_of(self, figure: PaperFigure, method: str) -> TrainingRow | None:
        """Return the run of this method that stands beside a figure: at the paper's batch, or else at the largest."""
        found = [row for row in self.rows if row.method == method and _may_stand_beside(row, figure)]
        return max(found, key=lambda row: (row.batch.micro == figure.batch_micro, row.batch.micro), default=None)

    @cached_property
    def breakdowns(self) -> dict[str, RunBreakdown]:
        """The breakdowns that can be read, by run id."""
        found = ((row.id, breakdown_of(row)) for row in self.rows if row.state == RunStatus.SUCCESS)
        return {name: breakdown for name, breakdown in found if breakdown}

    def measured(self, row: TrainingRow) -> MeasuredTimes | None:
        """Return what a run measured; None where it has no breakdown."""
        model, found = row.plan.config.model, self.breakdowns.get(row.id)
        return MeasuredTimes(found, model.num_layers if isinstance(model, SizedModel) else None) if found else None


def places(rows: Iterable[TrainingRow]) -> list[Place]:
    """Sort runs that may stand beside the paper's into places, in the order in which these come."""
    found: dict[tuple[str, ...], list[TrainingRow]] = {}
    for row in (row for row in rows if row.plan.config.sweep.name == SWEEP or row.hardware == HARDWARE):
        own = "" if row.model in MODELS else row.model
        found.setdefault(
            (own, *(value for name, value in row.comparison_key.items() if name not in _WITHIN)), []
        ).append(row)
    return [Place(tuple(group)) for group in found.values()]


def differences(row: TrainingRow, figure: PaperFigure) -> list[str]:
    """Return in what a run differs from the paper's; times of runs that differ are not compared."""
    unlike = settings_unlike(row)
    checks = {
        f"model {row.model} for {figure.model}": row.model != figure.model,
        f"{row.hardware} for {HARDWARE}": row.hardware != HARDWARE,
        f"{row.processes} ranks for {WORLD_SIZE}": row.processes != WORLD_SIZE,
        f"batch {row.batch.micro} for {figure.batch_micro}": row.batch.micro != figure.batch_micro,
        f"{row.batch.accumulation} passes for 1": row.batch.accumulation != 1,
        f"seq_len {row.seq_len} for {SEQ_LEN}": row.seq_len != SEQ_LEN,
        f"engine {row.comparison_key['engine']} for deepspeed": row.comparison_key["engine"] != "deepspeed",
        f"task {row.comparison_key['task']} for pretrain": row.comparison_key["task"] != "pretrain",
        row.layout: bool(row.layout),
        row.comparison_key["data"]: bool(row.comparison_key["data"]),
        ", ".join(unlike): bool(unlike),
    }
    return [difference for difference, differs in checks.items() if differs]


def said_once(found: Iterable[Sequence[str]]) -> list[str]:
    """Return all differences of several runs, each once."""
    return list(dict.fromkeys(difference for each in found for difference in each))


def _may_stand_beside(row: TrainingRow, figure: PaperFigure) -> bool:
    """Tell whether a run is the paper's, or is to be looked at beside it because an experiment of the paper made it."""
    if row.plan.config.sweep.name != SWEEP:
        return not differences(row, figure)
    return row.model == figure.model or row.model not in MODELS
