"""Published recipes beside our ranking for the same training: recipes.csv has the columns of published.csv."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.advice.layouts import marks_of, per_device, words_of
from benchmarks.advice.searched import Searched, rate_of, searched
from benchmarks.prediction.published_rows import Row, published_rows
from llmexp.record.digits import rounded

RECIPES = Path(__file__).with_name("recipes.csv")
_HEAD = """\
The best recipes that were found published, with their sources, for five questions. Ours is the first option for the
same model, cards, length, samples of a step and mathematics, over all engines and kernels, among those that may fit. It
beats or ties the recipe where its predicted speed is not more than 3 % below that of the recipe's plan. Both are
predicted, so only the measured column says what somebody saw. Speeds are tokens/s of a card. `faster` counts the
options that are predicted above the recipe.

For Qwen3-8B with LoRA on one RTX 4090 no speed was found: torchtune's Llama-3 8B stands for it. For 7B with QLoRA on
one RTX 3090 it is half of what two made that exchange adapters alone. The paper's 13B is pre-training, which computes
what full fine-tuning does. The recipes of 70B in fp8 are faster, and not among these.
"""


def recipe_rows() -> list[Row]:
    """Return the recipes; fine-tuning as on one card, as questions about it are."""
    return [replace(row, devices=1) if row.kind == "finetune" else row for row in published_rows(RECIPES)]


def all_recipes() -> list[tuple[Row, Searched]]:
    """Search for every recipe; a recipe's measured speed is that of its own row."""
    return [
        (measured, searched(row, any_engine=True))
        for measured, row in zip(published_rows(RECIPES), recipe_rows(), strict=True)
    ]


def recipes_part(judged: Sequence[tuple[Row, Searched]]) -> Iterator[str]:
    """Yield the table."""
    yield _HEAD
    yield "| question | source | recipe | measured | predicted | our first | predicted | faster | beats or ties |"
    yield "|---|---|---|---:|---:|---|---:|---:|---|"
    for measured, one in judged:
        yield f"| {' | '.join(_cells(measured, one))} |"


def _cells(measured: Row, one: Searched) -> list[str]:
    row = one.row
    adapter = row.adapter or ("full" if row.kind == "finetune" else "pre-training")
    question = f"{row.model}, {adapter}, {row.devices} {row.hardware}, {row.seq_len} x {row.samples}"
    speed = measured.tokens_per_s_per_device
    known = rounded(speed) if speed == speed else "-"
    if one.plan is None or not one.ours:
        return [question, f"[{row.source}]({row.url})", one.refused, known, *"-----"]
    first = one.ours[0]
    faster = sum(rate_of(plan) > rate_of(one.plan) for plan in one.ours)
    return [
        question,
        f"[{row.source}]({row.url})",
        words_of(one.plan) + marks_of(one),
        known,
        rounded(per_device(one.plan)),
        f"{first.config.engine.name} {words_of(first)}",
        rounded(per_device(first)),
        str(faster),
        "yes" if one.is_beaten else "no",
    ]
