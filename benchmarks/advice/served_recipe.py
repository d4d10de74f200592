"""70B served by eight H100: copies of published servers beside every degree that is predicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.prediction.served import Measured, architecture, hardware, measured
from llmexp.record.digits import rounded
from llmexp.serving.predict.batching import Load
from llmexp.serving.predict.held import Formats, held
from llmexp.serving.predict.limits import cache_room

MODEL, HARDWARE, CARDS = "llama3-70b", "h100", 8
PROMPT, OUTPUT = "128", "2048"
_DEGREES, _CACHE_BYTES = (1, 2, 4, 8), {"fp8": 1, "fp16": 2}
_HEAD = """\
70B serving on 8 x H100, as many requests as there are of 128 tokens with 2048 of output: copies of a server share the
cards. Published are those of TensorRT-LLM, one server each. Speeds are output tokens/s of all eight cards.
"""


@dataclass(frozen=True)
class ServedOption:
    """Copies of a server on all cards: its format, its degree, and output tokens/s."""

    weights: str
    tp: int
    predicted: float
    published: Measured | None = None

    @property
    def copies(self) -> int:
        """The servers that the cards hold."""
        return CARDS // self.tp

    @property
    def measured(self) -> float | None:
        """What so many copies of the published server make."""
        return self.published.value * self.copies if self.published else None


def published() -> list[Measured]:
    """Return the published servers of this model, card and load, the newest version of each degree and format."""
    wanted = {"model": MODEL, "hardware": HARDWARE, "input_tokens": PROMPT, "output_tokens": OUTPUT, "load": "max"}
    rows = [one for one in measured() if all(one.row[key] == value for key, value in wanted.items())]
    newest: dict[tuple[str, str], Measured] = {}
    for one in sorted(rows, key=lambda one: [int(part) for part in one.row["version"].split(".")]):
        newest[one.row["weights"], one.row["cards"]] = one
    return list(newest.values())


def served_options() -> list[ServedOption]:
    """Return every degree in both formats, the fastest first; one that holds no request has no speed."""
    known = {(one.row["weights"], one.held.cards): one for one in published()}
    made = [
        ServedOption(weights, tp, CARDS // tp * _predicted(weights, tp), known.get((weights, tp)))
        for weights in _CACHE_BYTES
        for tp in _DEGREES
    ]
    return sorted(made, key=lambda one: -one.predicted)


def _predicted(weights: str, tp: int) -> float:
    """Return the output tokens/s that one server is predicted to make of an endless load."""
    part = held(architecture(MODEL), tp, Formats(weights, 2, _CACHE_BYTES[weights]))
    load = Load(float(PROMPT), float(OUTPUT))
    row = {**published()[0].row, "weights": weights, "cards": str(tp)}
    one = Measured(row, part, load, 0.0)
    has_room = cache_room(hardware(HARDWARE), part.weights_bytes) >= part.cache_bytes(load.prompt + load.output)
    return one.server().outcome(load).output_tokens_per_s if has_room else 0.0


def served_part() -> Iterator[str]:
    """Yield the ranking with what was published of it."""
    yield _HEAD
    yield "| place | weights | tp | copies | predicted | published | source |"
    yield "|---:|---|---:|---:|---:|---:|---|"
    for place, one in enumerate(served_options(), 1):
        printed = rounded(one.measured) if one.measured else "-"
        source = f"[{one.published.source}]({one.published.row['url']})" if one.published else ""
        predicted = rounded(one.predicted) if one.predicted else "no room"
        yield f"| {place} | {one.weights} | {one.tp} | {one.copies} | {predicted} | {printed} | {source} |"
