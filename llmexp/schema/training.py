"""How a model is trained: optimizer, parallelism, dtypes, switches of memory and kernels, batch, protocol."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from llmexp.schema.data import DataConfig
from llmexp.schema.model import AdapterConfig, ModelConfig
from llmexp.schema.run import MeasureConfig, RunConfig, TaskConfig
from llmexp.schema.section import CpKind, DottedPath, Dtype, NonNegativeInt, PositiveFloat, PositiveInt, Section, Tuple


class TrainingTaskConfig(TaskConfig):
    """What is trained: all parameters from random weights, or a model that goes on from its own."""

    name: Literal["pretrain", "finetune"]
    save_model: bool = Field(
        False, description="leave all weights, adapters merged, in repeat.0/model when everything is measured: a folder for transformers"
    )


class OptimizerConfig(Section):
    """AdamW with its constants; or, with `target`, any optimizer class of torch's kind, whose constants are in `options`."""

    name: str
    implementation: Literal["torch", "deepspeed", "deepspeed_with_offload"] = "torch"
    lr: Annotated[float, Field(ge=0)]
    betas: Annotated[tuple[float, float] | None, Tuple] = None
    eps: PositiveFloat | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    target: DottedPath | None = Field(None, description="dotted path of an optimizer class; called with the parameters, lr and options")
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the target's class besides lr")
    moments: NonNegativeInt | None = Field(None, description="state tensors of a parameter's size that the target keeps of it; None: not known")
    moment_dtype: Literal["fp32", "bf16", "int8"] | None = Field(
        None, description="of the target's moments; int8: in blocks of 256 with an fp32 scale each; None: precision.moments"
    )
    factored: bool = Field(False, description="the target keeps of a matrix's moment one vector of its rows and one of its columns")
    fused_backward: bool = Field(False, description="the target updates each parameter as soon as backward has its gradient, which is then dropped")

    @property
    def package(self) -> str:
        """Top-level module of the target's class; empty for AdamW."""
        return (self.target or "").partition(".")[0]

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the optimizer's class."""
        if self.target:
            return {"lr": self.lr, **self.options}
        return {"lr": self.lr, "betas": list(self.betas or ()), "eps": self.eps, "weight_decay": self.weight_decay}

    @model_validator(mode="after")
    def _adamw_or_target(self) -> OptimizerConfig:
        constants = {"betas": self.betas, "eps": self.eps, "weight_decay": self.weight_decay}
        wrong = next((name for name, value in constants.items() if (value is None) is not bool(self.target)), None)
        if wrong and self.target:
            raise ValueError(f"optimizer.{wrong} is AdamW's: with optimizer.target={self.target} put it into optimizer.options")
        if wrong:
            raise ValueError(f"optimizer.{wrong} is missing: set optimizer.{wrong}=<value>, or optimizer.target for another class than AdamW")
        if self.target and self.implementation != "torch":
            raise ValueError(f"optimizer.target={self.target} needs optimizer.implementation=torch, not {self.implementation}")
        of_target = {"options": self.options, "moments": self.moments is not None, "moment_dtype": self.moment_dtype}
        alone = next((name for name, value in of_target.items() if value and not self.target), None)
        if alone:
            raise ValueError(f"optimizer.{alone} says something of optimizer.target, which is not set")
        return self


class ParallelismConfig(Section):
    """Degrees of parallelism; their product is the world size. dp: null takes what the hardware has."""

    dp: PositiveInt | None
    tp: PositiveInt = 1
    sequence: bool = Field(False, description="sequence parallelism: norms and residuals cut along the sequence over the tensor-parallel ranks")
    pp: PositiveInt = 1
    virtual_stages: PositiveInt = Field(1, description="stages of each pipeline rank")
    schedule: Literal["gpipe", "1f1b", "interleaved", "looped_bfs", "zero_bubble", "zbv", "dualpipev"] | None = Field(
        None, description="the order of a pipeline's passes; None: 1f1b, or interleaved with several virtual stages"
    )
    cp: PositiveInt = Field(1, description="context parallelism: every sequence cut over so many ranks")
    cp_kind: CpKind | None = Field(
        None,
        description="with cp: ring, where keys and values pass from rank to rank, or ulysses, where each rank attends with some of the heads; "
        "None: the engine's own",
    )
    ep: PositiveInt = 1


class PrecisionConfig(Section):
    """Storage dtypes; master is the dtype of the copy that the optimizer updates (equal to parameters: no copy)."""

    name: str
    parameters: Dtype
    gradients: Dtype
    master: Dtype
    moments: Dtype
    chosen_because: str = Field("", description="what precision=auto chose this one for; empty where it was named")


class MemoryConfig(Section):
    """Where a rank keeps what is no training state."""

    activation_offload: bool = Field(False, description="what backward needs of forward waits in host memory, parameters left out")


class KernelsConfig(Section):
    """Kernels in the place of the model's own."""

    liger: bool = Field(False, description="Liger's fused kernels for norms, rotary embeddings, gated MLPs and the loss; GPUs only")


class BatchConfig(Section):
    """Samples per rank and forward pass, and how many such passes one optimizer step accumulates."""

    micro: PositiveInt
    accumulation: PositiveInt


class TrainingMeasureConfig(MeasureConfig):
    """The protocol of a training run: steps to warm up and to measure, when fewer will do, and what is recorded of each."""

    warmup_steps: PositiveInt
    steps: PositiveInt
    tokens: PositiveInt | None = Field(
        None, description="train each repeat on so many, warm-up included, and report how its loss fell; decides `steps`. None: no such budget"
    )
    stop_at_interval_share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="end a repeat before all steps, and the run before all repeats, once half the 95 % interval of tokens_per_s, over that repeat's "
        "steps or over the repeats, is less than this share of it; None: all steps of all repeats",
    )
    min_steps: PositiveInt = Field(40, description="measured before the interval may end a repeat; 40 are the 10 batches of 4 that it is drawn from")
    profile: bool = Field(description="trace a few more steps after the last repeat's measured window")
    profile_steps: PositiveInt = 2
    phases: bool = Field(True, description="time forward, backward and optimizer apart")

    @model_validator(mode="after")
    def _one_end(self) -> TrainingMeasureConfig:
        if self.tokens and self.stop_at_interval_share:
            raise ValueError(
                f"measure.tokens={self.tokens} says where a run ends, and measure.stop_at_interval_share={self.stop_at_interval_share} might end it "
                "before: leave one of them out"
            )
        return self


class TrainingConfig(RunConfig):
    """One training run, fully composed: what Hydra's groups and the command line gave."""

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
        """The model's, the data's and the tokenizer's places."""
        named = (self.model.path, self.data.path, self.data.tokenizer, *(pattern.partition("*")[0] for pattern in self.data.files))
        return tuple(name for name in named if name)

    @property
    def targets(self) -> tuple[str, ...]:
        """The optimizer's and the model's class."""
        return tuple(target for target in (self.optimizer.target, self.model.target) if target)
