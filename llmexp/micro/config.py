"""The sections of task=micro: which microbenchmarks are measured, at which sizes, and how each is sampled.

Each family of llmexp.registry has a section of its own, which its class states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, create_model, model_serializer

from llmexp.micro.families.base import Family
from llmexp.registry import FAMILIES, families
from llmexp.schema.model import ModelConfig
from llmexp.schema.run import MeasureConfig, RunConfig, TaskConfig
from llmexp.schema.section import Dtype, PositiveFloat, PositiveInt, Section, Steps, Tuple


class MicroChoice(Section):
    """What the sections of all families share."""

    name: str
    ranks: PositiveInt | None = Field(None, description="processes that measure at the same time; None: one per device")
    dtypes: Annotated[tuple[Dtype, ...], Tuple] | None = Field(
        None,
        description="of products, attention and operators; None: bf16; on cpu fp32, or bf16 where it is native",
    )

    def section(self, family: Family[Any]) -> Any:
        """Return the section of a family; None where it is left out."""
        return getattr(self, family.name)

    @model_serializer(mode="wrap")
    def _without_absent_packages(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what other packages add and this run does not use, so that its plan is read without them."""
        own = {*MicroChoice.model_fields, *FAMILIES}
        found: dict[str, Any] = write(self)
        return {name: value for name, value in found.items() if value is not None or name in own}


if TYPE_CHECKING:
    MicroConfig = MicroChoice
else:
    MicroConfig = create_model(
        "MicroConfig",
        __base__=MicroChoice,
        __module__=__name__,
        __doc__="The microbenchmarks of one run; those that are null are left out.",
        **{family.name: (family.keys | None, None) for family in families()},
    )


class MicroTaskConfig(TaskConfig):
    """Microbenchmarks: what this machine can do at most."""

    name: Literal["micro"]


class MicroMeasureConfig(MeasureConfig):
    """The protocol of a microbenchmark: how many samples each point gets, and its limit of time."""

    samples: Steps = Field(100, description="of each point, as far as point_limit_s allows")
    warmup_calls: Steps = 5
    min_sample_s: PositiveFloat = Field(
        1e-4, description="a shorter call is repeated within a sample until the sample takes this long"
    )
    point_limit_s: PositiveFloat = Field(
        2.0, description="a point of slow calls gets fewer samples, but at least five, and is marked"
    )

    @property
    def warmup_limit_s(self) -> float:
        """The seconds that a point's warm-up takes at most, besides its first call."""
        return 0.5 * self.point_limit_s


class MicroRunConfig(RunConfig):
    """The configuration of a run of task=micro."""

    task: MicroTaskConfig
    model: ModelConfig
    micro: MicroConfig
    measure: MicroMeasureConfig
