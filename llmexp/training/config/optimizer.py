"""The optimizers that update the parameters: AdamW and any class with torch's interface have a type each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from llmexp.schema.section import DottedPath, MomentDtype, NonNegativeInt, PositiveFloat, PositiveInt, Tuple
from llmexp.schema.tagged import Tagged


class _Optimizer(Tagged):
    """The keys that all optimizers share."""

    name: str
    lr: Annotated[float, Field(ge=0)]
    clip_norm: PositiveFloat | None = Field(
        None, description="the largest norm of the whole model's gradient, to which larger ones are scaled; None: any"
    )
    schedule: Literal["constant", "linear", "cosine", "wsd"] = Field(
        "constant",
        description="what the learning rate does after its warm-up; wsd: it is constant, and falls in the last steps",
    )
    warmup_steps: NonNegativeInt = Field(0, description="first steps, in which the learning rate rises to lr")
    decay_steps: PositiveInt | None = Field(
        None, description="last steps of wsd, in which the learning rate falls; None: a tenth of the schedule's"
    )
    final_lr_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="of lr, to which the learning rate falls"
    )
    total_steps: PositiveInt | None = Field(
        None, description="of the schedule, after which its last rate stays; None: those of the run with its warm-up"
    )


class AdamW(_Optimizer):
    """AdamW with its constants; it keeps two moments of each parameter in precision.moments."""

    kinds = ("AdamW",)
    said = "optimizer={name}, which sets no optimizer.target, is AdamW"
    choose = "choose one that does, such as optimizer=sgd"
    targets: ClassVar[tuple[str, ...]] = ()
    package: ClassVar[str] = ""
    moments: ClassVar[int] = 2
    moment_dtype: ClassVar[None] = None
    rest: ClassVar[None] = None
    factored: ClassVar[bool] = False
    preconditioned_side: ClassVar[None] = None
    fused_backward: ClassVar[bool] = False

    implementation: Literal["torch", "deepspeed", "deepspeed_with_offload"] = "torch"
    betas: Annotated[tuple[float, float], Tuple]
    eps: PositiveFloat
    weight_decay: Annotated[float, Field(ge=0)]

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of the optimizer's class."""
        return {"lr": self.lr, "betas": list(self.betas), "eps": self.eps, "weight_decay": self.weight_decay}


class TargetOptimizer(_Optimizer):
    """Any optimizer class with torch's interface; its constants are in `options`."""

    kinds = ("optimizers with optimizer.target",)
    said = "optimizer.target={target} is another class"
    choose = "take optimizer=adamw"
    instead = dict.fromkeys(("betas", "eps", "weight_decay"), "put it into optimizer.options, as optimizer=sgd does")
    implementation: ClassVar[Literal["torch"]] = "torch"

    target: DottedPath = Field(
        description="dotted path of an optimizer class; called with the parameters, lr and options"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="keyword arguments of the target's class besides lr"
    )
    moments: NonNegativeInt | None = Field(
        None, description="state tensors of a parameter's size that the target keeps for each parameter; None: unknown"
    )
    moment_dtype: MomentDtype | None = Field(
        None,
        description="of the target's moments; int8: in blocks of 256 with an fp32 scale each; None: precision.moments",
    )
    rest: dict[str, Any] | None = Field(
        None,
        description=(
            "the target takes the matrices of decoder layers alone, and these are the keyword arguments of AdamW for "
            "all other parameters; None: it takes all"
        ),
    )
    factored: bool = Field(
        False, description="the target keeps one vector for the rows and one for the columns of a matrix's moment"
    )
    preconditioned_side: PositiveInt | None = Field(
        None,
        description=(
            "the target keeps two square matrices, beside its moments, for each side of a matrix no longer than "
            "this, as SOAP does; None: it keeps none"
        ),
    )
    fused_backward: bool = Field(
        False,
        description="the target updates each parameter as soon as backward has its gradient, then drops the gradient",
    )

    @property
    def targets(self) -> tuple[str, ...]:
        """The dotted paths of classes that the ranks import: the optimizer's class alone."""
        return (self.target,)

    @property
    def package(self) -> str:
        """The top-level module of the class."""
        return self.target.partition(".")[0]

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of the class."""
        return {"lr": self.lr, **self.options}


def _type(given: Any) -> str | None:
    """Return the name of the type that fits what is given; None where that is no section."""
    if isinstance(given, _Optimizer):
        return type(given).__name__
    if not isinstance(given, Mapping):
        return None
    return "AdamW" if given.get("target") is None else "TargetOptimizer"


OptimizerConfig = Annotated[
    Annotated[AdamW, Tag("AdamW")] | Annotated[TargetOptimizer, Tag("TargetOptimizer")], Discriminator(_type)
]
