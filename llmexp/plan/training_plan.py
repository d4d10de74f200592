"""The plan of a training run."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from llmexp.method import Method, Techniques
from llmexp.plan.dims import ParallelDims
from llmexp.record.flops import Flops
from llmexp.record.plan import RunPlan, runtime_name
from llmexp.record.result import Batch
from llmexp.record.samples import Record
from llmexp.schema import DataConfig, HfModel, TrainingConfig


class AtomChange(Record):
    """One atom of the method and what it changed against Naive."""

    code: str
    help: str
    sets: dict[str, Any]


class TrainingPlan(RunPlan):
    """What is decided of a training run: its method, degrees, batch, and the arithmetic of parameters, FLOPs and memory."""

    rate = "tokens_per_s"
    sample_name = "step"

    method: str
    atoms: list[AtomChange]
    dims: ParallelDims
    batch: Batch
    parameters: int | None = Field(
        description="of the whole model; None where the shape is not known before it is built"
    )
    trainable_parameters: int | None
    active_parameters: int | None = Field(
        None, description="that a token meets: all but those of experts that it is not sent to"
    )
    flops_per_token: float | None = Field(
        description="model FLOPs of one token's forward and backward pass, without recomputation"
    )
    recomputed_flops_per_token: float | None = Field(
        None, description="what recomputation computes besides; 0 without it"
    )
    flops: Flops | None = Field(None, description="what MFU and HFU count")
    optimizer_state_bytes_per_parameter: float | None = Field(
        None, description="moments of a trained parameter; None where optimizer.target tells none"
    )
    config: TrainingConfig

    @property
    def asked(self) -> str:
        """Method and data."""
        return f"method={self.method}, data={self.config.data.name}"

    @property
    def subject(self) -> dict[str, str]:
        """The model and the method."""
        return {"model": self.config.model.name, "method": self.method}

    @property
    def techniques(self) -> Techniques:
        """What the method's atoms together set."""
        return Method.parse(self.method, self.config.task.name).techniques

    @property
    def atom_codes(self) -> tuple[str, ...]:
        """In canonical order."""
        return tuple(atom.code for atom in self.atoms)

    @property
    def over_amount(self) -> tuple[str, ...]:
        """The loss, of runs with a budget of tokens."""
        return ("loss",) if self.config.measure.tokens else ()

    @property
    def replicas(self) -> int:
        """Those of data parallelism: other ranks work on the same positions."""
        return self.dims.dp

    @property
    def loads_host(self) -> bool:
        """With offload."""
        return self.techniques.offload_optimizer or self.techniques.offload_parameters

    @property
    def compiles(self) -> bool:
        """By atom C."""
        return self.techniques.compilation

    @property
    def model_to_fetch(self) -> HfModel | None:
        """Of pretrained weights only."""
        return self.config.model.checkpoint

    @property
    def kind(self) -> dict[str, str]:
        """Task, engine, hardware, degrees and precision."""
        config, dims = self.config, self.dims
        degrees = "x".join(map(str, (dims.dp, dims.tp, dims.pp, dims.cp)))
        names = {group: getattr(config, group).name for group in ("task", "engine", "hardware", "precision")}
        return names | {"degrees": degrees}

    @property
    def arithmetic(self) -> str:
        """The product of the degrees."""
        return f"parallelism: {self.dims.arithmetic}"

    @property
    def params(self) -> dict[str, Any]:
        """Method, degrees, batch and counts."""
        counts = ("parameters", "trainable_parameters", "active_parameters", "flops_per_token")
        known = {name: count for name in counts if (count := getattr(self, name)) is not None}
        degrees = {f"parallelism.{name}": degree for name, degree in self.dims.model_dump().items()}
        return {"method": self.method, "batch.global": self.batch.global_} | degrees | known

    @property
    def in_result(self) -> dict[str, Any]:
        """Model, method, batch and sequence length."""
        return {
            "model": self.config.model.name,
            "method": self.method,
            "batch": self.batch,
            "seq_len": self.config.data.seq_len,
        }

    @property
    def samples(self) -> int:
        """Steps, warm-up included."""
        return self.config.measure.warmup_steps + self.config.measure.steps

    @property
    def measured_samples(self) -> int:
        """Steps of the measured window."""
        return self.config.measure.steps

    @property
    def amount(self) -> float:
        """Positions of a step over all data-parallel ranks."""
        return self.batch.global_ * self.config.data.seq_len

    @property
    def program(self) -> str:
        """The whole command of a program of engine=script; empty for other engines."""
        engine = self.config.engine
        return str(engine.options.get("command") or "") if engine.name == "script" else ""

    @property
    def layout(self) -> str:
        """The degrees that are not 1, without dp, and the pipeline's schedule; empty for data parallelism alone."""
        dims = self.dims
        degrees = {"tp": dims.tp, "pp": dims.pp, "virtual stages": dims.virtual_stages, "cp": dims.cp, "ep": dims.ep}
        more = [word for word in (dims.cp_kind, dims.schedule) if word] + ["sequence"] * dims.sequence
        return " ".join([f"{name} {degree}" for name, degree in degrees.items() if degree > 1] + more)

    @property
    def work(self) -> dict[str, str]:
        """What a step does, apart from the method. What a program of one's own does is declared by whoever runs it: llmexp has not built it."""
        config = self.config
        said, told = "declared " if self.program else "", self._told_by_line
        return {
            "task": config.task.name,
            "model": said + config.model.name,
            "hardware": config.hardware.name,
            "engine": f"script {self.program}" if self.program else config.engine.name,
            "ranks": str(self.processes),
            "layout": self.layout,
            "batch": said * (not told & {"samples", "tokens"}) + _passes(self.batch),
            "seq_len": said * ("tokens" not in told) + str(config.data.seq_len),
            "data": _sequences(config.data),
            "precision": said + config.precision.name,
            "optimizer": said + config.optimizer.name,
            "runtime": runtime_name(config.runtime),
        }

    @property
    def _told_by_line(self) -> set[str]:
        """What a printed line of a program tells of its steps; one that reports by the hook tells its tokens."""
        line = self.engine_config.get("line")
        return set(re.findall(r"\(\?P<(\w+)>", line)) if line else {"tokens"}


def _passes(batch: Batch) -> str:
    return str(batch.micro) if batch.accumulation == 1 else f"{batch.micro} x {batch.accumulation} passes"


def _sequences(data: DataConfig) -> str:
    """How sequences are filled where padding is among them, and how they grow; empty for full ones of one length."""
    filled = f"{data.name} {'packed' if data.isolates else 'padded'}" if data.pads else ""
    return f"growing {' '.join(map(str, data.seq_len_schedule))}" if data.seq_len_schedule else filled
