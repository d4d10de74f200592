"""How it is trained: optimizer, parallelism, dtypes, switches of memory and kernels, batch, engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from llmexp.schema.section import CpKind, DottedPath, Dtype, NonNegativeInt, PositiveFloat, PositiveInt, Section, Tuple


class TaskConfig(Section):
    """What is done with the model."""

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


class EngineConfig(Section):
    """Who runs the training step, and who starts its ranks."""

    name: str
    launcher: Literal["spawn", "torchrun", "deepspeed", "python", "fork"] = Field(
        description="spawn: llmexp starts an interpreter for each rank; torchrun, deepspeed: these do, as in your own scripts; "
        "python: a program of one process, plainly; fork: ranks come from one process that has imported for all, on a CPU"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="merged over the native configuration of the engine")


class BatchConfig(Section):
    """Samples per rank and forward pass, and how many such passes one optimizer step accumulates."""

    micro: PositiveInt
    accumulation: PositiveInt
