"""The layout that advice names first, against the layouts of 70B on H100 that NVIDIA published tokens/s for."""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import NamedTuple

from benchmarks.prediction.served import PUBLISHED
from tests.serving.advice.served_options import layout, served_options

# Formats by the words of an option; published runs in 16 bits are of fp16.
_WORDS = {"fp8": ("engine.options.quantization=fp8", "engine.options.kv_dtype=fp8"), "fp16": ()}


class Work(NamedTuple):
    """Requests in one format of numbers."""

    weights: str
    prompt: str
    output: str


def published() -> dict[Work, dict[int, float]]:
    """Output tokens/s a card by the cards of one copy, of work with at least two layouts: bursts, TensorRT-LLM 0.14."""
    found: dict[Work, dict[int, float]] = defaultdict(dict)
    for row in csv.DictReader(PUBLISHED.read_text(encoding="utf-8").splitlines()):
        if (row["model"], row["hardware"], row["version"], row["load"]) == ("llama3-70b", "h100", "0.14.0", "max"):
            work, cards = Work(row["weights"], row["input_tokens"], row["output_tokens"]), int(row["cards"])
            found[work][cards] = float(row["value"]) / cards
    return {work: by_cards for work, by_cards in found.items() if len(by_cards) > 1}


def first_layout(work: Work) -> tuple[int, int]:
    lengths = (f"serve.prompt.tokens={work.prompt}", f"serve.output.tokens={work.output}", "model.max_positions=8192")
    words = ("model=70b", "model.vocab_size=128256", "hardware=h100", "engine=vllm", "serve.requests=3000", *lengths)
    formats = _WORDS[work.weights] or ("engine.options.kv_dtype=auto", "engine.options.quantization=null")
    return layout(served_options(*words, *formats)[0])


def test_the_first_layout_is_the_best_published_one() -> None:
    """Eight cards of its copies; a layout that was not published would have lost all."""
    lost = {}
    for work, by_cards in published().items():
        cards, copies = first_layout(work)
        assert cards * copies == 8
        lost[work] = 1 - by_cards.get(cards, 0.0) / max(by_cards.values())
    assert len(lost) == 4
    assert {work: share for work, share in lost.items() if share} == {}
