"""A family of microbenchmarks, for the driver: how fast rows of an embedding are looked up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from llmexp.extend import DEVICE, Curves, Family, Limit, MicroPoint, Section, Setting, Sizes, bytes_of


class LookupPoints(Section):
    """Rows of the model's embedding for so many tokens."""

    tokens: Sizes


class Lookups(Family[LookupPoints]):
    name = "lookups"
    keys = LookupPoints
    case = "llmexp_outside.family_ranks:lookup"
    title = "rows of the embedding"
    limits = (Limit("lookup_bytes_per_s", "rows of the embedding", "bytes_per_s", "embedding"),)
    curves = Curves("tokens", ("bytes_per_s",))
    without_model = "micro.lookups=null"

    def points(self, wanted: LookupPoints, setting: Setting) -> Iterator[MicroPoint]:
        shape = setting.shape
        for dtype, tokens in product(setting.dtypes, wanted.tokens):
            sizes = {"tokens": tokens, "vocab": shape.vocab_size, "hidden": shape.hidden_size}
            yield MicroPoint(family=self.name, kind="embedding", dtype=dtype, sizes=sizes)

    def bytes_moved(self, point: MicroPoint) -> float:
        return 2.0 * point.sizes["tokens"] * point.sizes["hidden"] * bytes_of(point.dtype)

    def memory(self, kind: str) -> str:
        return DEVICE


LOOKUPS = Lookups()
