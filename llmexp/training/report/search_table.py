"""The searches of several runs for their largest batches, beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.record.digits import rounded
from llmexp.report.columns import Column, ReportTable
from llmexp.training.analysis.batch_gain import WORTH, BatchGain
from llmexp.training.report.searched_batch import SearchedBatch, is_vague

_PAYS = {"pays": "faster", "saturated": "hardly faster", "unknown": "?"}
_LEGEND = (
    "fits: how many tries of the largest batch were not out of memory; too large: the smallest batch that was",
    "fastest: of the batches up to the largest, by the tokens/s of the trials, which are shorter than the measurement",
    "a doubling brings: what each doubling up to the largest batch brought in tokens/s, with its 95 % interval",
    f"with more memory: faster where a further doubling would bring more than {WORTH:.0%}; ?: too few trials to say",
)


def search_tables(found: Sequence[tuple[str, SearchedBatch]]) -> list[ReportTable]:
    """Return a table with a line for each search, by the name of its row; a single search has a note instead."""
    if len(found) < 2:
        return []
    names, searches = zip(*found, strict=True)
    columns = [
        Column("method", names, left=True),
        Column("largest batch", tuple(map(_largest, searches))),
        Column("fits", tuple(f"{one.fits} of {one.tries}" for one in searches)),
        Column("too large", tuple("" if one.too_large is None else str(one.too_large) for one in searches)),
        Column("fastest batch", tuple("" if one.fastest is None else str(one.fastest) for one in searches)),
        Column("tokens/s of fastest", tuple(_speed(one, one.fastest) for one in searches)),
        Column("of largest", tuple(_speed(one, one.largest) for one in searches), dispensable=2),
        Column("a doubling brings", tuple(_gained(one.gain) for one in searches)),
        Column("with more memory", tuple(_pays(one.gain) for one in searches), left=True),
    ]
    return [ReportTable("the searches for the largest batch a rank", columns, _LEGEND)]


def _largest(found: SearchedBatch) -> str:
    if not found.ended:
        return "not ended"
    return str(found.largest) if found.fits else "none"


def _speed(found: SearchedBatch, micro: int | None) -> str:
    return rounded(found.tokens_per_s[micro]) if micro is not None and micro in found.tokens_per_s else ""


def _pays(gain: BatchGain | None) -> str:
    return "?" if gain is None or is_vague(gain) else _PAYS[gain.answer]


def _gained(gain: BatchGain | None) -> str:
    if gain is None or is_vague(gain):
        return "?"
    low, high = gain.doubling.ratio_interval()
    return f"{gain.doubling.ratio - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})"
