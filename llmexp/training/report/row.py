"""A training run as a row: its model, method and batch, and the paper's cell of the same work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llmexp.record.result import Batch, Metric
from llmexp.record.trained import Trained
from llmexp.reference import (
    DTYPE,
    ENGINE,
    LORA_RANK,
    LORA_TARGETS,
    OPTIMIZER,
    SEQ_LEN,
    WORLD_SIZE,
    PaperCell,
    paper_cell,
    paper_largest,
)
from llmexp.report.row import Row
from llmexp.schema.section import MAX
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.report.trained import asked_training, read_trained

# On cpu there is no allocator to ask, and the process's memory says little about a small model, so the bytes of its
# training state are used.
MEMORY_METRICS = ("peak_allocated_bytes", "training_state_bytes")
# The paper's pre-training runs share these: task, sequence length, accumulation, and no layout but data parallelism.
PAPERS = ("pretrain", SEQ_LEN, 1, "")


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
        own: dict[str, Any] = {name: self.work[name] for name in ("task", "model", "seq_len", "data", "precision")}
        optimizer = {"name": self.work["optimizer"]} | config.optimizer.model_dump(
            include={"moments", "moment_dtype", "options"}
        )
        adapter = (
            {"adapter": config.adapter.model_dump(mode="json", exclude={"save"})} if plan.techniques.adapter else {}
        )
        return own | {"optimizer": optimizer, "global batch": plan.batch.global_} | counts | adapter

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
    def trained(self) -> Trained | None:
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
        return self.work["task"] == "pretrain" and not self.partly_trained

    @cached_property
    def memory(self) -> tuple[str, float] | None:
        """The name of the metric that gives this run's memory, and its bytes."""
        known = ((name, self.metric(name)) for name in MEMORY_METRICS)
        return next(((name, metric.mean) for name, metric in known if metric), None)

    @cached_property
    def paper(self) -> PaperCell | None:
        """The paper's cell of the same work, or None.

        Engine, method, model, hardware, samples per GPU, GPUs, passes and sequence length must be the same. A run that
        searched its largest batch has the cell of table IV, whatever batch was the largest there.
        """
        found = self._same_batch
        rank = self.plan.config.adapter.rank
        here = (self.work["task"], self.seq_len, self.batch.accumulation, self.layout, self.processes, rank)
        return (
            found
            if found and not self.work["data"] and here == (found.task, *PAPERS[1:], WORLD_SIZE, LORA_RANK)
            else None
        )

    @property
    def _same_batch(self) -> PaperCell | None:
        names = (self.model, self.method, self.hardware)
        if self.plan.config.batch.micro == MAX:
            return paper_largest(*names) if self.work["engine"] == ENGINE else None
        return paper_cell(*names, self.batch.micro, self.work["engine"])

    @property
    def unlike_paper(self) -> str:
        """The settings that the paper's cell was measured without, as far as it says so or its memory shows it.

        With any of them there is no ratio to the paper. The text is empty where none is known.
        """
        return ", ".join(self.settings_unlike_paper)

    @property
    def settings_unlike_paper(self) -> list[str]:
        """List the same settings one by one."""
        config, precision = self.plan.config, self.plan.config.precision
        states = {precision.parameters, precision.gradients, precision.master, precision.moments}
        differences = {
            f"precision={precision.name}": states != {DTYPE},
            f"optimizer={config.optimizer.name}": config.optimizer.name != OPTIMIZER,
            f"adapter.targets={','.join(config.adapter.targets)}": config.task.name == "finetune"
            and config.adapter.targets != LORA_TARGETS,
            "kernels.liger": config.kernels.liger,
            f"kernels.flash={config.kernels.flash}": config.kernels.flash != "auto",
            "memory.activation_offload": config.memory.activation_offload,
        }
        return [word for word, differs in differences.items() if differs]

    def finetuned(self, name: str) -> Metric | None:
        """Return a metric that the table shows for fine-tuning only."""
        return self.metric(name) if self.work["task"] == "finetune" else None

    @property
    def peak_phase(self) -> str:
        """The phase of the allocator's peak; empty where it is not known or there is no allocator."""
        return (
            str(self.result.what_ran.get("peak_phase") or "")
            if self.result and self.metric("peak_allocated_bytes")
            else ""
        )

    @property
    def memory_over_paper(self) -> float | None:
        """Peak allocated bytes over the paper's peak, or None.

        It is None where only the training state is known, or where the paper measured something else.
        """
        peak = self.metric("peak_allocated_bytes")
        return (
            peak.mean / self.paper.memory_bytes
            if peak and self.paper and self.paper.memory_bytes and not self.unlike_paper
            else None
        )
