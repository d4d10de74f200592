"""The sections that say how a model is trained: parallelism, dtypes, memory, kernels, batch and protocol."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from llmexp.dtypes import SCALED, SINGLE
from llmexp.schema.model import AdapterConfig, HfModel, ModelConfig
from llmexp.schema.run import MeasureConfig, RunConfig, TaskConfig
from llmexp.schema.section import (
    MAX,
    CpKind,
    Dtype,
    EndsAsLayers,
    Max,
    PeakDtype,
    PositiveFloat,
    PositiveInt,
    Section,
    Steps,
    Whole,
)
from llmexp.training.config.data import DataConfig
from llmexp.training.config.optimizer import OptimizerConfig

# Short runs of one batch, of which batch.fits have to fit.
FIT_TRIES = 3


class TrainingTaskConfig(TaskConfig):
    """The kind of training: pre-training from random weights, or fine-tuning of a model."""

    name: Literal["pretrain", "finetune"]
    save_model: bool = Field(
        False,
        description=("save all weights, adapters merged, to repeat.0/model after measuring: a folder for transformers"),
    )


class ParallelismConfig(Section):
    """The degrees of parallelism; dp x tp x pp x cp is the world size. With dp null, all devices are used."""

    dp: PositiveInt | None
    shard: PositiveInt | None = Field(
        None,
        description=(
            "hybrid sharding: with Z2 and Z3 so many neighboring ranks of dp partition the state, and the other ranks "
            "hold copies; None: all partition it"
        ),
    )
    tp: PositiveInt = 1
    sequence: bool = Field(
        False,
        description="sequence parallelism: norms and residuals split along the sequence over the tensor-parallel ranks",
    )
    pp: PositiveInt = 1
    virtual_stages: PositiveInt = Field(1, description="stages of each pipeline rank")
    schedule: Literal["gpipe", "1f1b", "interleaved", "looped_bfs", "zero_bubble", "zbv", "dualpipev"] | None = Field(
        None, description="the order of a pipeline's passes; None: 1f1b, or interleaved with several virtual stages"
    )
    ends_as_layers: EndsAsLayers | None = Field(
        None, description="which of embedding and head count as a layer where stages share out layers; None: neither"
    )
    cp: PositiveInt = Field(1, description="context parallelism: number of ranks that each sequence is split over")
    cp_kind: CpKind | None = Field(
        None,
        description=(
            "with cp: ring, where keys and values pass from rank to rank, or ulysses, where each rank attends with "
            "some of the heads; None: the engine's own"
        ),
    )
    ep: PositiveInt = 1
    etp: PositiveInt | None = Field(
        None, description="expert tensor parallelism: number of tp's ranks that each expert is cut over; None: all"
    )


class PrecisionConfig(Section):
    """The storage dtypes; the optimizer updates a copy in the master dtype, or the parameters where both are equal."""

    name: str
    parameters: Dtype
    gradients: Dtype
    master: Dtype
    moments: Dtype
    tf32: bool = Field(False, description="products of fp32 matrices may round their operands to TF32 on a GPU")
    linears: Literal["fp8"] | None = Field(
        None,
        description="what the decoder layers' linear layers multiply in, forward and backward; None: as all products",
    )
    scaling: Literal["tensorwise", "rowwise", "rowwise_with_gw_hp", "mxfp8", "delayed", "blockwise"] = Field(
        "tensorwise",
        description=(
            "the recipe of precision.linears=fp8: a scale for each matrix, for each row, for each row with the "
            "weights' gradients in the parameters' dtype, or for each block of 32 elements; TransformerEngine's "
            "besides: a scale of a matrix by earlier steps, or for each block of 128"
        ),
    )
    qat: Literal["int2", "int3", "int4", "int8"] | None = Field(
        None,
        description=(
            "what forward rounds the decoder layers' matrices to; gradients pass as if nothing was rounded, except to "
            "weights beyond the largest code (quantization-aware training); None: nothing"
        ),
    )
    qat_group_size: PositiveInt = Field(128, description="weights of a row that share a scale with precision.qat")
    initial_scale_power: Annotated[int, Field(ge=0, le=32), Whole] = Field(
        16, description="the loss is first multiplied by 2 to this power, with parameters in fp16"
    )
    scale_window: PositiveInt = Field(
        1000, description="steps without overflow after which that factor doubles; after one with overflow it halves"
    )
    chosen_because: str = Field("", description="why precision=auto chose this one; empty if it was named")

    @property
    def products(self) -> PeakDtype:
        """The dtype in which matrix products run, those of `linears` excepted."""
        return "tf32" if self.tf32 and self.parameters == SINGLE else self.parameters

    @property
    def scales_loss(self) -> bool:
        """Tell whether losses are multiplied by a factor, without which small gradients vanish."""
        return self.parameters == SCALED


Keep = Literal["attention", "products"]


class MemoryConfig(Section):
    """The place where a rank keeps activations, and states that O moves further than to host memory."""

    activation_offload: bool = Field(
        False, description="keep what backward needs of forward in host memory, except parameters"
    )
    keep: Keep | None = Field(
        None,
        description=(
            "results that R keeps instead of computing them again: those of attention, or of all products; None: none"
        ),
    )
    recompute_layers: PositiveInt | None = Field(
        None,
        description="how many layers R computes again, the first of the model or of each pipeline stage; None: all",
    )
    optimizer_folder: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description=(
            "with Z3+O and engine=deepspeed: a folder on a local disk for the optimizer's states, in files that end "
            "with the run (ZeRO-Infinity); None: host memory"
        ),
    )

    def recomputed_share(self, layers: int) -> float:
        """Return the share of a model's layers that R computes again."""
        return 1.0 if self.recompute_layers is None else self.recompute_layers / layers


class KernelsConfig(Section):
    """The kernels that replace the model's own."""

    liger: bool = Field(
        False, description="Liger's fused kernels for norms, rotary embeddings, gated MLPs and the loss; GPUs only"
    )
    flash: Literal["auto", "fa2", "cudnn", "fa3", "fa4"] = Field(
        "auto", description="the kernel of F on a GPU: auto uses the one that torch prefers there"
    )
    fused_accumulation: bool = Field(
        False,
        description=(
            "products of gradients add to those of the step's earlier passes, instead of an addition after each; "
            "engine=torch on one rank"
        ),
    )
    fused_projections: bool = Field(
        False,
        description="queries, keys and values are one product, and gate and up of an MLP; engine=torch and deepspeed",
    )
    chunked_loss: bool = Field(
        False, description="the head computes loss and gradients in chunks of 1024 tokens, so that few logits exist"
    )


class BatchConfig(Section):
    """The samples per rank and forward pass, and the number of such passes that one optimizer step accumulates."""

    micro: PositiveInt | Max = Field(description="max: the run searches for the largest that fits")
    accumulation: PositiveInt
    search: Literal["pow2", "bisect"] = Field(
        "bisect",
        description=(
            "what batch.micro=max tries once a batch was too large: bisection of what is left, or only powers of two"
        ),
    )
    largest: PositiveInt | None = Field(
        None, description="where batch.micro=max stops even if a larger one would fit; None: no limit"
    )
    fits: Annotated[int, Field(ge=1, le=FIT_TRIES), Whole] = Field(
        2,
        description=f"the times of {FIT_TRIES} that a batch has to fit for batch.micro=max: near the limit it is luck",
    )

    @property
    def is_searched(self) -> bool:
        """Tell whether the run itself finds its samples per rank and pass."""
        return self.micro == MAX

    @property
    def samples(self) -> int:
        """The samples per rank and pass; 1 where the largest number is still to be found."""
        return 1 if self.micro == MAX else self.micro


class TrainingMeasureConfig(MeasureConfig):
    """The protocol of a training run: the numbers of steps, when fewer are enough, and what is recorded of each."""

    warmup_steps: Steps
    steps: Steps
    tokens: PositiveInt | None = Field(
        None,
        description=(
            "train each repeat on this many, warm-up included, and report how its loss fell; determines `steps`. "
            "None: no token budget"
        ),
    )
    duration_s: PositiveFloat | None = Field(
        None,
        description=(
            "train each repeat until its measured steps have taken so many seconds, whatever `steps` says, and report "
            "how its loss fell; None: no time budget"
        ),
    )
    stop_at_interval_share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description=(
            "end a repeat before all steps, and the run before all repeats, once half the 95 % interval of "
            "tokens_per_s, over that repeat's steps or over the repeats, is less than this share of it; "
            "None: all steps of all repeats"
        ),
    )
    min_steps: Steps = Field(
        40,
        description="measured before the interval may end a repeat; 40 are the 10 batches of 4 that it is drawn from",
    )
    profile: bool = Field(description="trace a few more steps after the measured window of the last repeat")
    profile_steps: Steps = 2
    phases: bool = Field(True, description="time forward, backward and optimizer separately")

    @model_validator(mode="after")
    def _one_end(self) -> TrainingMeasureConfig:
        ends = [key for key in ("tokens", "duration_s", "stop_at_interval_share") if getattr(self, key)]
        if len(ends) > 1:
            said = " and ".join(f"measure.{key}={getattr(self, key):g}" for key in ends)
            raise ValueError(f"{said} each say where a run ends: leave all but one of them out")
        return self

    @property
    def has_budget(self) -> bool:
        """Tell whether a budget of tokens or seconds, and no number of steps, says where training ends."""
        return bool(self.tokens or self.duration_s)


class TrainingConfig(RunConfig):
    """The configuration of one training run, fully composed from Hydra's groups and the command line."""

    method: str
    task: TrainingTaskConfig
    model: ModelConfig
    parallelism: ParallelismConfig
    optimizer: OptimizerConfig
    precision: PrecisionConfig
    data: DataConfig
    batch: BatchConfig
    measure: TrainingMeasureConfig
    adapter: AdapterConfig = AdapterConfig()
    memory: MemoryConfig = MemoryConfig()
    kernels: KernelsConfig = KernelsConfig()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The places of the model, the data and the tokenizer."""
        return (self.model.path, *self.data.inputs) if isinstance(self.model, HfModel) else self.data.inputs

    @property
    def targets(self) -> tuple[str, ...]:
        """The classes of the optimizer and the model."""
        return (*self.optimizer.targets, *([self.model.target] if self.model.target else []))
