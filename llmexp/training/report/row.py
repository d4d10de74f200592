"""A training run as a row: its model, method and batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llmexp.record.result import Batch, Metric
from llmexp.report.row import Row
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.report.trained import asked_training, read_trained
from llmexp.training.trained_run import TrainedRun

# On cpu there is no allocator to ask, and the process's memory says little about a small model, so the bytes of its
# training state are used.
MEMORY_METRICS = ("peak_allocated_bytes", "training_state_bytes")


@dataclass(frozen=True)
class TrainingRow(Row):
    """A run that trains."""

    plan: TrainingPlan

    @property
    def done(self) -> dict[str, Any]:
        """The work of one step, as counted by the run, or as planned where the run has not counted."""
        plan, config = self.plan, self.plan.config
        counted = {name: self.metric(name) for name in ("parameters", "trainable_parameters")}
        counts = {name: int(metric.mean) if metric else getattr(plan, name) for name, metric in counted.items()}
        own: dict[str, Any] = {
            name: self.comparison_key[name] for name in ("task", "model", "seq_len", "data", "precision")
        }
        optimizer = {"name": self.comparison_key["optimizer"]} | config.optimizer.model_dump(
            include={"moments", "moment_dtype", "options"}
        )
        adapter = (
            {"adapter": config.adapter.model_dump(mode="json", exclude={"save"})} if plan.techniques.adapter else {}
        )
        return own | {"optimizer": optimizer, "global batch": plan.batch.global_} | counts | adapter

    @property
    def over_predicted(self) -> float | None:
        """The measured rate over the one that the plan had predicted; None where either is missing."""
        predicted = self.plan.predicted
        return self.rate.mean / predicted.rate if self.rate and predicted else None

    @property
    def model(self) -> str:
        """The model's name."""
        return self.plan.config.model.name

    @property
    def method(self) -> str:
        """The canonical name of the method."""
        return self.plan.method

    @property
    def batch(self) -> Batch:
        """The batch: samples per rank and pass, passes, and samples per step."""
        return self.plan.batch

    @property
    def seq_len(self) -> int:
        """Positions of one sample."""
        return self.plan.config.data.seq_len

    @property
    def layout(self) -> str:
        """The layout of the plan; see TrainingPlan."""
        return self.plan.layout

    @property
    def program(self) -> str:
        """The program of the plan; see TrainingPlan."""
        return self.plan.program

    @cached_property
    def asked_training(self) -> dict[str, str]:
        """The settings that decide what is learned."""
        return asked_training(self.plan)

    @cached_property
    def trained(self) -> TrainedRun | None:
        """What the run did as a training; None where it was not measured to its end."""
        if not self.result or not self.rate:
            return None
        return read_trained(self.plan, self.folder, self.result.what_ran, self.asked_training)

    @property
    def partly_trained(self) -> bool:
        """Tell whether 4-bit weights stay frozen, so that the run is not full pre-training."""
        return "Q" in self.method.split("+")

    @property
    def fully_pretrained(self) -> bool:
        """Tell whether all parameters train from random weights."""
        return self.comparison_key["task"] == "pretrain" and not self.partly_trained

    @cached_property
    def memory(self) -> tuple[str, float] | None:
        """The name of the metric that gives this run's memory, and its bytes."""
        known = ((name, self.metric(name)) for name in MEMORY_METRICS)
        return next(((name, metric.mean) for name, metric in known if metric), None)

    def finetuned(self, name: str) -> Metric | None:
        """Return a metric that the table shows for fine-tuning only."""
        return self.metric(name) if self.comparison_key["task"] == "finetune" else None

    @property
    def peak_phase(self) -> str:
        """The phase of the allocator's peak; empty where it is not known or there is no allocator."""
        return (
            str(self.result.what_ran.get("peak_phase") or "")
            if self.result and self.metric("peak_allocated_bytes")
            else ""
        )
