"""The operators of a model's layers that memory limits, forward."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated, Literal

from llmexp.dtypes import bytes_of
from llmexp.micro.families.base import DEVICE, Family, MicroPoint, Setting
from llmexp.schema.section import Section, Sizes, Tuple

Operator = Literal["rms_norm", "rope", "softmax", "cross_entropy"]


class OperatorPoints(Section):
    """The model's operators that memory limits, forward."""

    kinds: Annotated[tuple[Operator, ...], Tuple]
    tokens: Sizes


class Operators(Family[OperatorPoints]):
    """Operators at the model's sizes."""

    name = "operators"
    keys = OperatorPoints
    case = "llmexp.launchers.micro.operators:operator"
    title = "operators that memory limits, forward"
    without_model = "micro.operators=null"

    def points(self, wanted: OperatorPoints, setting: Setting) -> Iterator[MicroPoint]:
        """Yield each operator for each number of tokens, in each dtype."""
        shape = setting.shape
        own = {
            "rms_norm": {"hidden": shape.hidden_size},
            "rope": {"heads": shape.num_heads, "kv_heads": shape.num_kv_heads, "head_dim": shape.head_dim},
            "softmax": {"heads": shape.num_heads},  # of the scores, tokens x tokens
            "cross_entropy": {"vocab": shape.vocab_size},
        }
        for dtype, kind, tokens in product(setting.dtypes, wanted.kinds, wanted.tokens):
            yield MicroPoint(family=self.name, kind=kind, dtype=dtype, sizes={"tokens": tokens} | own[kind])

    def bytes_moved(self, point: MicroPoint) -> float:
        """Return the bytes of inputs and results."""
        sizes, tokens = point.sizes, point.sizes["tokens"]
        elements = {
            "rms_norm": lambda: 2 * tokens * sizes["hidden"],
            "rope": lambda: 2 * tokens * (sizes["heads"] + sizes["kv_heads"]) * sizes["head_dim"],
            "softmax": lambda: 2 * sizes["heads"] * tokens**2,
            "cross_entropy": lambda: tokens * sizes["vocab"],
        }
        return float(bytes_of(point.dtype) * elements[point.kind]())

    def memory(self, kind: str) -> str:
        """Return DEVICE."""
        return DEVICE

    def is_graphed(self, kind: str) -> bool:
        """Tell that calls are kernels alone."""
        return True


OPERATORS = Operators()
