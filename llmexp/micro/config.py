"""The sections of task=micro: which microbenchmarks are measured, at which sizes, and how each is sampled."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from llmexp.schema.model import ModelConfig
from llmexp.schema.run import MeasureConfig, RunConfig, TaskConfig
from llmexp.schema.section import Dtype, NonNegativeInt, PositiveFloat, PositiveInt, Section, Steps, Tuple

Sizes = Annotated[tuple[PositiveInt, ...], Tuple]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast", "all_to_all", "send_recv"]
CopyKind = Literal[
    "host_to_device_pinned",
    "host_to_device_pageable",
    "device_to_host_pinned",
    "device_to_host_pageable",
    "device_to_device",
]
AttentionKernel = Literal["unfused", "flash", "fa2", "cudnn", "fa3", "fa4"]
Operator = Literal["rms_norm", "rope", "softmax", "cross_entropy"]


class GemmPoints(Section):
    """Matrix products [m, k] x [k, n], as a linear layer with n outputs and k inputs computes them for m tokens."""

    m: Sizes = ()
    m_plus: NonNegativeInt = Field(0, description="added to every m, so that none is a multiple of a kernel's tile")
    nk: Annotated[tuple[Annotated[tuple[PositiveInt, PositiveInt], Tuple], ...], Tuple] = Field(
        (), description="pairs of n and k; each is measured with every m"
    )
    m_of_model: Sizes = Field((), description="tokens, for each matrix of the model")


class MemoryPoints(Section):
    """STREAM's triad, a = b + s c."""

    bytes: Sizes = Field(description="of each of the three arrays")


class CopyPoints(Section):
    """Copies between host and device, and on the device."""

    kinds: Annotated[tuple[CopyKind, ...], Tuple]
    bytes: Sizes


class CollectivePoints(Section):
    """Collectives of all ranks, over NCCL or Gloo."""

    kinds: Annotated[tuple[Collective, ...], Tuple]
    bytes: Sizes = Field(description="as nccl-tests counts them: the larger of what a rank puts in and gets out")


class AttentionPoints(Section):
    """Causal attention with the model's heads, forward and backward."""

    kernels: Annotated[tuple[AttentionKernel, ...], Tuple] = Field(
        description="in three steps, by the fused kernel that torch prefers, or by one of kernels.flash (GPUs only)"
    )
    seq_lens: Sizes
    batch: PositiveInt = 1


class OperatorPoints(Section):
    """The model's operators that memory limits, forward."""

    kinds: Annotated[tuple[Operator, ...], Tuple]
    tokens: Sizes


class OptimizerPoints(Section):
    """A step of AdamW with fp32 states."""

    places: Annotated[tuple[Literal["device", "host"], ...], Tuple] = Field(
        description="where states and update are; on cpu both are the host"
    )
    parameters: Sizes


class DiskPoints(Section):
    """Files written and read past the page cache, as states that are offloaded to NVMe would be."""

    kinds: Annotated[tuple[Literal["write", "read"], ...], Tuple]
    bytes: Sizes
    folder: str | None = Field(None, description="None: the run's own folder")


class MicroConfig(Section):
    """The microbenchmarks of one run; those that are null are left out."""

    name: str
    ranks: PositiveInt | None = Field(None, description="that measure at the same time; None: one for each device")
    dtypes: Annotated[tuple[Dtype, ...], Tuple] | None = Field(
        None,
        description="of products, attention and operators; None: bf16, on cpu fp32, and bf16 where it is native",
    )
    gemm: GemmPoints | None = None
    memory: MemoryPoints | None = None
    copies: CopyPoints | None = None
    collectives: CollectivePoints | None = None
    attention: AttentionPoints | None = None
    operators: OperatorPoints | None = None
    optimizer: OptimizerPoints | None = None
    disk: DiskPoints | None = None


class MicroTaskConfig(TaskConfig):
    """Microbenchmarks: what this machine can do at most."""

    name: Literal["micro"]


class MicroMeasureConfig(MeasureConfig):
    """The protocol of a microbenchmark: how many samples each point gets, and its limit of time."""

    samples: Steps = Field(100, description="of each point, where point_limit_s lets so many be taken")
    warmup_calls: Steps = 5
    min_sample_s: PositiveFloat = Field(
        1e-4, description="a shorter call is repeated within a sample until it takes so long"
    )
    point_limit_s: PositiveFloat = Field(
        2.0, description="a point of slow calls gets fewer samples, but at least five, and is marked"
    )


class MicroRunConfig(RunConfig):
    """The configuration of a run of task=micro."""

    task: MicroTaskConfig
    model: ModelConfig
    micro: MicroConfig
    measure: MicroMeasureConfig
