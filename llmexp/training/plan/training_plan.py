"""The plan of a training run."""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from llmexp.method import Method, Techniques
from llmexp.record.flops import Flops
from llmexp.record.plan import RunPlan, runtime_name
from llmexp.record.read_data import ReadData
from llmexp.record.result import Batch
from llmexp.record.samples import Record
from llmexp.schema import HardwareConfig, HfModel
from llmexp.schema.section import MAX
from llmexp.training.config import DataConfig, TrainingConfig, WrittenData
from llmexp.training.config.run import BatchConfig
from llmexp.training.plan.degrees import WITH_RANKS
from llmexp.training.plan.dims import ParallelDims


class AtomChange(Record):
    """One atom of the method, and what it changed in comparison with Naive."""

    code: str
    help: str
    sets: dict[str, Any]


class TrainingPlan(RunPlan):
    """The plan of a training run adds its method, degrees and batch, and the arithmetic of parameters and FLOPs."""

    rate = "tokens_per_s"
    sample_name = "step"

    method: str
    atoms: list[AtomChange]
    dims: ParallelDims
    batch: Batch
    settled: bool = Field(True, description="false as long as batch.micro=max has to be searched for")
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
    layers: str = Field("", description="by kind, of a model that is not like Llama")
    uncounted: dict[str, str] = Field({}, description="why parameters, FLOPs or memory are not known, by these names")
    engine_compiles: bool = Field(False, description="the ranks compile code by torch.compile, by C or by the engine")
    contents: dict[str, str] = Field(
        default_factory=dict, description="digests of the checkpoint and of the data files, which make other runs"
    )
    config: TrainingConfig

    @property
    def requested(self) -> str:
        """The method and the data in words."""
        return f"method={self.method}, data={self.config.data.name}"

    @property
    def name_fields(self) -> dict[str, str]:
        """The model and the method."""
        return {"model": self.config.model.name, "method": self.method}

    @property
    def techniques(self) -> Techniques:
        """The switches that the method's atoms together set."""
        return _techniques(self.method, self.config.task.name)

    @property
    def atom_codes(self) -> tuple[str, ...]:
        """The codes of the atoms in canonical order."""
        return tuple(atom.code for atom in self.atoms)

    @property
    def over_amount(self) -> tuple[str, ...]:
        """The loss where a run has a budget: there it says more over the tokens than over the steps."""
        return ("loss",) if self.config.measure.has_budget else ()

    @property
    def replicas(self) -> int:
        """The number of data-parallel replicas; ranks of the same replica work on the same positions."""
        return self.dims.dp

    @property
    def loads_host(self) -> bool:
        """Tell whether the host's memory and links are busy, which they are with offload."""
        return self.techniques.offload_optimizer or self.techniques.offload_parameters

    @property
    def compiles(self) -> bool:
        """Tell whether the ranks compile code that torch.compile generates."""
        return self.engine_compiles or self.techniques.compilation

    @property
    def model_to_fetch(self) -> HfModel | None:
        """The model whose weights may have to be fetched before the run; None unless weights are pretrained."""
        return self.config.model.checkpoint

    @property
    def dataset(self) -> ReadData:
        """What is read, called by its only file or place, else by its kind."""
        data = self.config.data
        places = [place for place in data.inputs if place != _tokenizer(data)]
        name = Path(places[0]).stem if len(places) == 1 else data.name
        described = hashlib.sha256(data.model_dump_json().encode()).hexdigest()[:12]
        return ReadData(name, ", ".join(places), self.contents.get("data", described))

    @property
    def tokenizer(self) -> str:
        """The tokenizer of texts, a folder by its whole path."""
        asked = _tokenizer(self.config.data)
        local = Path(asked).expanduser()
        return str(local.resolve()) if asked not in ("", "bytes") and local.is_dir() else asked

    @property
    def duration_key(self) -> dict[str, str]:
        """The task, engine, hardware, degrees, precision and optimizer, by name, with what else changes a step."""
        config = self.config
        degrees = "x".join(str(self.dims.degrees[name]) for name in WITH_RANKS)
        groups = ("task", "engine", "hardware", "precision", "optimizer")
        names = {group: getattr(config, group).name for group in groups} | {"degrees": degrees}
        precision = config.precision
        more = {
            "kernels": config.kernels.model_dump(mode="json", exclude_defaults=True),
            "memory": config.memory.model_dump(mode="json", exclude_defaults=True),
            "fp8": precision.linears and precision.scaling,
            "qat": precision.qat,
            "options": config.engine.options,
        }
        return names | {name: json.dumps(value, sort_keys=True) for name, value in more.items() if value}

    @property
    def arithmetic(self) -> str:
        """The product of the degrees in words."""
        return f"parallelism: {self.dims.arithmetic}"

    @property
    def params(self) -> dict[str, Any]:
        """The method, degrees above 1, batch, length and counts, by name."""
        counts = ("parameters", "trainable_parameters", "active_parameters", "flops_per_token")
        known = {name: count for name in counts if (count := getattr(self, name)) is not None}
        degrees = {f"parallelism.{name}": degree for name, degree in self.dims.degrees.items() if degree > 1}
        batch = {"batch.micro": self.batch.micro, "batch.accumulation": self.batch.accumulation}
        work = batch | {"batch.global": self.batch.global_, "data.seq_len": self.config.data.seq_len}
        predicted = {"predicted_tokens_per_s": f"{self.predicted.rate:.4g}"} if self.predicted else {}
        return {"method": self.method} | work | degrees | known | predicted

    @property
    def in_result(self) -> dict[str, Any]:
        """The model, method, batch and sequence length, by name."""
        return {
            "model": self.config.model.name,
            "method": self.method,
            "batch": self.batch,
            "seq_len": self.config.data.seq_len,
        }

    @property
    def samples(self) -> int:
        """The number of steps, warm-up included; 0 where seconds say when training ends."""
        return 0 if self.asked_s else self.config.measure.warmup_steps + self.config.measure.steps

    @property
    def measured_samples(self) -> int:
        """The number of steps of the measured window; 0 where seconds say when it ends."""
        return 0 if self.asked_s else self.config.measure.steps

    @property
    def asked_s(self) -> float | None:
        """The seconds that the measured steps of a repeat shall take; None where a number of steps was asked for."""
        return self.config.measure.duration_s

    @property
    def amount(self) -> float:
        """The positions of a step over all data-parallel replicas; 0 as long as the batch is searched for."""
        return self.batch.global_ * self.config.data.seq_len * self.settled

    @property
    def flops_per_amount(self) -> float | None:
        """The FLOPs of a token with those of recomputation; None where llmexp does not build the model."""
        model, again = self.flops_per_token, self.recomputed_flops_per_token
        return None if model is None or again is None else model + again

    @property
    def least_flops(self) -> float | None:
        """None where steps are shorter at first, or are those of your own program."""
        is_other = self.program or self.config.data.seq_len_schedule
        return None if is_other else super().least_flops

    @property
    def peak_flops_per_s(self) -> float | None:
        """The dense peak of a device for the fastest products of the precision."""
        precision = self.config.precision
        return self.config.hardware.peak_flops_per_s.get(precision.linears or precision.products)

    @property
    def emulates(self) -> bool:
        """Tell whether products in fp8 are computed in other dtypes, at other speeds, because the hardware has none."""
        return super().emulates or bool(self.engine_config.get("float8", {}).get("emulate"))

    @property
    def program(self) -> str:
        """The whole command of a program with engine=script; empty for other engines."""
        engine = self.config.engine
        return str(engine.options.get("command") or "") if engine.name == "script" else ""

    @property
    def layout(self) -> str:
        """The degrees that are not 1, without dp, and the pipeline's schedule; empty for data parallelism alone."""
        return self.dims.layout

    @property
    def comparison_key(self) -> dict[str, str]:
        """A description of a step's work, without the method.

        Values of your own program are marked as declared: llmexp has not built it and cannot check them.
        """
        config = self.config
        said, told = "declared " if self.program else "", self._told_by_line
        return {
            "task": config.task.name,
            "model": said + config.model.name,
            "hardware": config.hardware.name,
            "engine": f"script {self.program}" if self.program else config.engine.name,
            "ranks": str(self.processes),
            "layout": self.layout,
            "batch": said * (not told & {"samples", "tokens"}) + _asked_batch(config.batch, self.batch),
            "memory limit": _limit(config.hardware),
            "seq_len": said * ("tokens" not in told) + str(config.data.seq_len),
            "data": _sequences(config.data),
            "precision": said + config.precision.name,
            "optimizer": said + config.optimizer.name,
            "runtime": runtime_name(config.runtime),
        }

    @property
    def _told_by_line(self) -> set[str]:
        """The quantities that a program's printed line tells of a step; the hook always tells the tokens."""
        line = self.engine_config.get("line")
        return set(re.findall(r"\(\?P<(\w+)>", line)) if line else {"tokens"}


def _tokenizer(data: DataConfig) -> str:
    return data.tokenizer if isinstance(data, WrittenData) else ""


def _asked_batch(asked: BatchConfig, batch: Batch) -> str:
    """Say the batch of a pass and the number of passes; one that was searched for is called by its search."""
    micro = f"{MAX} of powers of 2" if asked.is_searched and asked.search == "pow2" else str(asked.micro)
    return micro if batch.accumulation == 1 else f"{micro} x {batch.accumulation} passes"


def _limit(hardware: HardwareConfig) -> str:
    return f"{hardware.memory_limit_bytes / 1e9:.4g} GB a rank" if hardware.memory_limit_bytes else ""


def _sequences(data: DataConfig) -> str:
    """Say how sequences are padded, or how they grow; return "" for full sequences of one length."""
    filled = f"{data.name} {'packed' if data.isolates else 'padded'}" if data.pads else ""
    return f"growing {' '.join(map(str, data.seq_len_schedule))}" if data.seq_len_schedule else filled


@lru_cache(1024)
def _techniques(method: str, task: str) -> Techniques:
    """Return a method's switches; a report asks for those of thousands of runs of a few methods."""
    return Method.parse(method, task).techniques
