"""Matrix products. The product of [m, k] and [k, n] is 2 m n k FLOPs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated

from pydantic import Field

from llmexp.dtypes import HALF, SINGLE, of_parameters
from llmexp.inputs.shape import ModelShape
from llmexp.micro.families.base import Bar, Curves, Family, Limit, MicroPoint, Setting
from llmexp.schema.section import NonNegativeInt, PositiveInt, Section, Sizes, Tuple


class GemmPoints(Section):
    """Matrix products [m, k] x [k, n], as a linear layer with n outputs and k inputs computes them for m tokens."""

    m: Sizes = ()
    m_plus: NonNegativeInt = Field(0, description="added to every m, so that none is a multiple of a kernel's tile")
    nk: Annotated[tuple[Annotated[tuple[PositiveInt, PositiveInt], Tuple], ...], Tuple] = Field(
        (), description="pairs of n and k; each is measured with every m"
    )
    m_of_model: Sizes = Field((), description="tokens, for each matrix of the model")


class Gemm(Family[GemmPoints]):
    """Products of squares and of the model's matrices."""

    name = "gemm"
    keys = GemmPoints
    case = "llmexp.launchers.micro.gemm:gemm"
    title = "matrix products, [m, k] by [k, n]"
    limits = tuple(
        Limit(f"gemm_{dtype}_flops_per_s", f"matrix products in {dtype}", "flops_per_s", "gemm", dtype)
        for dtype in of_parameters()
    )
    curves = Curves("m", ("flops_per_s",))
    bar = Bar(tuple(f"gemm_{dtype}_flops_per_s" for dtype in (HALF, SINGLE)), "products, TFLOP/s", 1e12)
    without_model = "micro.gemm.m_of_model=[]"

    def points(self, wanted: GemmPoints, setting: Setting) -> Iterator[MicroPoint]:
        """Yield every m with every n and k, then the model's own matrices, in each dtype."""
        shapes = [(m + wanted.m_plus, n, k) for (n, k), m in product(wanted.nk, wanted.m)]
        if wanted.m_of_model:
            shapes += [(m, n, k) for (n, k), m in product(_matrices(setting.shape), wanted.m_of_model)]
        for dtype, (m, n, k) in product(setting.dtypes, dict.fromkeys(shapes)):
            yield MicroPoint(family=self.name, kind="gemm", dtype=dtype, sizes={"m": m, "n": n, "k": k})

    def flops(self, point: MicroPoint) -> float:
        """Return 2 m n k."""
        return 2.0 * point.sizes["m"] * point.sizes["n"] * point.sizes["k"]

    def is_graphed(self, kind: str) -> bool:
        """Tell that calls are kernels alone."""
        return True


def _matrices(shape: ModelShape) -> list[tuple[int, int]]:
    """Return the outputs and inputs of each different matrix of the model, the output projection last."""
    layers = [(outputs, inputs) for inputs, outputs in shape.matrices.values()]
    return list(dict.fromkeys([*layers, (shape.vocab_size, shape.hidden_size)]))


GEMM = Gemm()
