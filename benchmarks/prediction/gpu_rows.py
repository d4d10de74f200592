"""The rows that this project measured on GPUs, each with the plan that the same words get on such a card."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.prediction.cells import RESULTS
from benchmarks.prediction.judge import FITTED_CARD
from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.errors import ConfigError
from llmexp.record.memory import Fit
from llmexp.record.plan import RunPlan, overrides_of
from llmexp.record.predicted import Prediction
from llmexp.registry import get_task
from llmexp.training.plan.training_plan import TrainingPlan

CARDS = ("h100", "h200")


@dataclass(frozen=True)
class GpuRow:
    """A row of a card's tables with the plan of its words; `refused` says why there is no plan."""

    table: str
    row: Mapping[str, str]
    plan: RunPlan | None
    refused: str = ""

    @property
    def card(self) -> str:
        """The name of its hardware."""
        return self.row["hardware"]

    @property
    def is_served(self) -> bool:
        """Tell whether it is of a server."""
        return self.row["task"] == "serve"

    @property
    def measured(self) -> float | None:
        """The tokens/s that its table shows; None where it has no speed."""
        text = self.row.get(self.row.get("rate") or "")
        return float(text) if text else None

    @property
    def prediction(self) -> Prediction | None:
        """What its plan predicts."""
        return self.plan.predicted if self.plan else None

    @property
    def unpredicted(self) -> str:
        """Why its plan predicts no speed, as `llmexp plan --verbose` says; empty where it does."""
        if self.prediction or self.plan is None:
            return self.refused
        task = self.plan.config.task.name
        said = get_task(task).describe(self.plan).get("prediction", "")
        skipped = self.plan.skip.reason if self.plan.skip else ""
        return skipped or said.removeprefix("none: ") or f"task={task} has no speed to predict"

    @property
    def off(self) -> float | None:
        """Predicted over measured tokens/s, less 1."""
        return self.prediction.rate / self.measured - 1 if self.prediction and self.measured else None

    @property
    def held(self) -> bool:
        """Tell whether the 90 % interval holds the measured speed."""
        found, measured = self.prediction, self.measured
        return found is not None and measured is not None and found.low <= measured <= found.high

    @property
    def is_fitted(self) -> bool:
        """Tell whether the constants of predictions were fitted to it, besides the paper's cells."""
        return self.off is not None and self.card == FITTED_CARD and isinstance(self.plan, TrainingPlan)

    @property
    def fit(self) -> Fit | None:
        """How its plan expects it to fit; None where that is not known."""
        return get_task(self.plan.config.task.name).fit(self.plan) if self.plan else None

    @property
    def ended(self) -> str:
        """How it ended."""
        return {"success": "ran", "oom": "out of memory"}.get(self.row["state"], self.row["state"])

    @property
    def allocated(self) -> float | None:
        """The bytes of a training's measured peak: what its allocator gave out."""
        text = self.row.get("peak_allocated_bytes")
        return float(text) if text else None

    @property
    def held_bytes(self) -> float | None:
        """The same, or of a server what was in use on the card."""
        text = self.row.get("gpu_peak_memory_bytes")
        return self.allocated or (float(text) if text else None)

    @property
    def memory_off(self) -> float | None:
        """Predicted over measured peak of the allocator, less 1."""
        return self.fit.tensors / self.allocated - 1 if self.fit and self.allocated else None


def gpu_rows(results: Path = RESULTS) -> list[GpuRow]:
    """Plan every row of the tables of these cards; no earlier run, of no folder, takes part."""
    with TemporaryDirectory() as nothing:
        return [_planned(path, row, nothing) for card in CARDS for path, row in _read(results / card)]


def _read(folder: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    for path in sorted(folder.glob("*.csv")):
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            yield path, row


def _planned(path: Path, row: Mapping[str, str], outputs: str) -> GpuRow:
    words = [word for word in overrides_of(row["command"]) if word != "-m"]
    named = any(word.startswith("hardware=") for word in words)
    words = [*words, *[f"hardware={row['hardware']}"] * (not named), f"sweep.outputs={outputs}"]
    table = f"{path.parent.name}/{path.stem}"
    try:
        (job,) = jobs_of(run_parser().parse_intermixed_args(words))
    except ConfigError as error:
        return GpuRow(table, row, None, " ".join(str(error).split()))
    return GpuRow(table, row, job.plan)
