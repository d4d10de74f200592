"""A step of AdamW on the device or on the host, as O has it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from llmexp.dtypes import SINGLE
from llmexp.micro.families.base import DEVICE, HOST, Family, Limit, MicroPoint, Setting
from llmexp.schema.section import Section, Sizes, Tuple

# Value, gradient and two moments in fp32.
ADAMW_BYTES_PER_PARAMETER = 4 * 4
# It reads value, gradient and two moments, and writes value and moments.
ADAMW_BYTES_MOVED = 7 * 4


class OptimizerPoints(Section):
    """A step of AdamW with fp32 states."""

    places: Annotated[tuple[Literal["device", "host"], ...], Tuple] = Field(
        description="where states and update are; on cpu both are the host"
    )
    parameters: Sizes


class Optimizer(Family[OptimizerPoints]):
    """AdamW's step, which memory limits."""

    name = "optimizer"
    keys = OptimizerPoints
    case = "llmexp.launchers.micro.optimizer:adamw"
    title = "the optimizer's step"
    limits = tuple(
        Limit(
            f"adamw_on_{place}_bytes_per_s", f"AdamW's step, states on the {place}", "bytes_per_s", f"adamw_on_{place}"
        )
        for place in (DEVICE, HOST)
    )
    larger = "micro.optimizer.parameters"

    def points(self, wanted: OptimizerPoints, setting: Setting) -> Iterator[MicroPoint]:
        """Yield a step in each place for each number of parameters."""
        for place, parameters in product(wanted.places, wanted.parameters):
            yield MicroPoint(family=self.name, kind=f"adamw_on_{place}", dtype=SINGLE, sizes={"parameters": parameters})

    def bytes_moved(self, point: MicroPoint) -> float:
        """Return the bytes that are read and written."""
        return float(ADAMW_BYTES_MOVED * point.sizes["parameters"])

    def memory(self, kind: str) -> str:
        """Return where the states are."""
        return kind.removeprefix("adamw_on_")

    def data_bytes(self, point: MicroPoint) -> float:
        """Return the bytes of values, gradients and moments."""
        return float(ADAMW_BYTES_PER_PARAMETER * point.sizes["parameters"])


OPTIMIZER = Optimizer()
