"""What of a server changes the mathematics of its model: numbers in fewer bits than 16."""

from __future__ import annotations

from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.formats import formats_of

_BITS = {"fp8": 8, "int4": 4}
_WHOLE = 16


def bits_left(plan: ServingPlan) -> tuple[int, int]:
    """Return the bits of a weight and of a number of the cache, of a plan that is predicted."""
    formats = formats_of(plan)
    return _BITS.get(formats.weights, _WHOLE), 8 * formats.cache_bytes


def changes_of(plan: ServingPlan) -> tuple[str, ...]:
    """Return in a few words each what makes outputs differ from those of the model in 16 bits; none where nothing does.

    Nothing says how much worse they are: measure the answers.
    """
    weights, cache = bits_left(plan)
    said = {f"weights in {weights} bits": weights < _WHOLE, f"keys and values in {cache} bits": cache < _WHOLE}
    return tuple(words for words, is_so in said.items() if is_so)
