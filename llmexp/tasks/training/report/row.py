"""A training run as a row: with its model, method and batch, and the paper's cell of the same work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llmexp.plan.training_plan import TrainingPlan
from llmexp.record.result import Batch, Metric
from llmexp.reference import DTYPE, LORA_RANK, LORA_TARGETS, OPTIMIZER, SEQ_LEN, WORLD_SIZE, PaperCell, paper_cell
from llmexp.report.row import Row

# Where there is no allocator to ask (cpu), the process's memory says nothing of a small model; the bytes of its training state do.
MEMORY_METRICS = ("peak_allocated_bytes", "training_state_bytes")
# What the paper's runs of pre-training have in common: task, sequence length, accumulation, no layout but data parallelism.
PAPERS = ("pretrain", SEQ_LEN, 1, "")


@dataclass(frozen=True)
class TrainingRow(Row):
    """A run that trains."""

    plan: TrainingPlan

    @property
    def done(self) -> dict[str, Any]:
        """What one step works through; counted where the run has counted, else as planned."""
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
        """Samples per rank and pass, passes, samples per step."""
        return self.plan.batch

    @property
    def seq_len(self) -> int:
        """Positions of one sample."""
        return self.plan.config.data.seq_len

    @property
    def layout(self) -> str:
        """See TrainingPlan."""
        return self.plan.layout

    @property
    def program(self) -> str:
        """See TrainingPlan."""
        return self.plan.program

    @property
    def partly_trained(self) -> bool:
        """Whether 4-bit weights stay frozen, so that the run is not full pre-training."""
        return "Q" in self.method.split("+")

    @property
    def fully_pretrained(self) -> bool:
        """Whether all parameters train from random weights."""
        return self.work["task"] == "pretrain" and not self.partly_trained

    @cached_property
    def memory(self) -> tuple[str, float] | None:
        """The metric that tells this run's memory, and its bytes."""
        known = ((name, self.metric(name)) for name in MEMORY_METRICS)
        return next(((name, metric.mean) for name, metric in known if metric), None)

    @cached_property
    def paper(self) -> PaperCell | None:
        """The paper's cell of the same engine, method, model, hardware, samples per GPU, GPUs, passes and sequence length."""
        found = paper_cell(self.model, self.method, self.hardware, self.batch.micro, self.work["engine"])
        rank = self.plan.config.adapter.rank
        here = (self.work["task"], self.seq_len, self.batch.accumulation, self.layout, self.processes, rank)
        return (
            found
            if found and not self.work["data"] and here == (found.task, *PAPERS[1:], WORLD_SIZE, LORA_RANK)
            else None
        )

    @property
    def unlike_paper(self) -> str:
        """What the paper's cell was measured without, as far as it says or its memory tells: then there is no ratio. Empty where nothing is known."""
        config, precision = self.plan.config, self.plan.config.precision
        states = {precision.parameters, precision.gradients, precision.master, precision.moments}
        differences = {
            f"precision={precision.name}": states != {DTYPE},
            f"optimizer={config.optimizer.name}": config.optimizer.name != OPTIMIZER,
            f"adapter.targets={','.join(config.adapter.targets)}": config.task.name == "finetune"
            and config.adapter.targets != LORA_TARGETS,
            "kernels.liger": config.kernels.liger,
            "memory.activation_offload": config.memory.activation_offload,
        }
        return ", ".join(word for word, differs in differences.items() if differs)

    def finetuned(self, name: str) -> Metric | None:
        """A metric that the table shows of fine-tuning only."""
        return self.metric(name) if self.work["task"] == "finetune" else None

    @property
    def peak_phase(self) -> str:
        """The phase in which the allocator's peak came; empty where nobody knows, or there is no allocator to ask."""
        return (
            str(self.result.what_ran.get("peak_phase") or "")
            if self.result and self.metric("peak_allocated_bytes")
            else ""
        )

    @property
    def memory_over_paper(self) -> float | None:
        """Peak allocated bytes over the paper's peak; None where only the training state is known, or the paper measured something else."""
        peak = self.metric("peak_allocated_bytes")
        return (
            peak.mean / self.paper.memory_bytes
            if peak and self.paper and self.paper.memory_bytes and not self.unlike_paper
            else None
        )
