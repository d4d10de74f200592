"""Whether runs that were asked for the same training on different engines or layouts did the same: told by their losses, and by what ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf, isnan
from statistics import fmean
from typing import Any

from llmexp.errors import RecordError
from llmexp.record.result import read_samples
from llmexp.report.programs import engine_names
from llmexp.report.row import Row

# Later steps amplify differences of rounding.
COMPARED_STEPS = 10
# Of the loss, between two orders of the same sums, by the parameters' dtype.
SAME_WITHIN = {"fp32": 1e-4, "bf16": 2e-2}
# What may differ without changing the training, and explains speeds.
EXPLAINS = ("attention_kernel", "reduced_in")


def fairness(rows: Iterable[Row]) -> list[str]:
    """A line for each pair of layouts that agree, over all methods, and one for each method where a pair does not."""
    agreed: dict[tuple[str, str], list[tuple[str, float]]] = {}
    lines, known = [], tuple(rows)
    engines = engine_names(known)
    for first, other in _pairs(known):
        names, share = (_layout(first, engines), _layout(other, engines)), _difference(first, other)
        if share is None:
            continue
        if share > SAME_WITHIN[first.plan["config"]["precision"]["parameters"]]:
            lines.append(
                f"not the same training: the losses of {names[1]} are up to {share:.2%} from those of {names[0]} with {first.method}, "
                f"in the first steps, {COMPARED_STEPS} at most: their speeds do not compare"
            )
        else:
            agreed.setdefault(names, []).append((first.method + _explanation(first, other), share))
    for (one, another), methods in agreed.items():
        largest = max(share for _, share in methods)
        listed, within = ", ".join(method for method, _ in methods), f"within {largest:.1e} of each other"
        lines.append(f"the same training on {one} and {another}: losses of the first steps, {COMPARED_STEPS} at most, {within} ({listed})")
    return lines


def _pairs(rows: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    """Each measured run with the first one that was asked for the same training on another layout."""
    firsts: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if row.metric("tokens_per_s") is None:
            continue
        first = firsts.setdefault(_asked(row), row)
        if _work(first) != _work(row):
            yield first, row


def _asked(row: Row) -> tuple[Any, ...]:
    config = row.plan["config"]
    named = (config[section]["name"] for section in ("task", "model", "precision", "optimizer", "data"))
    return (row.method, *named, config["seed"], row.batch.global_, row.seq_len)


def _work(row: Row) -> tuple[Any, ...]:
    return row.work["engine"], row.plan["dims"]["dp"], row.layout


def _layout(row: Row, engines: Mapping[str, str]) -> str:
    """The engine by its name in the table, and the degrees that are not 1."""
    dp = row.plan["dims"]["dp"]
    return " ".join(filter(None, [engines[row.plan["id"]], f"dp {dp}" * (dp > 1), row.layout]))


def _difference(first: Row, other: Row) -> float | None:
    """The largest distance between the losses of a step, as a share of the first's; None where either has none that can be read."""
    try:
        pairs = list(zip(_losses(first), _losses(other), strict=False))
    except (OSError, RecordError, ValueError):
        return None
    return max((_apart(*pair) for pair in pairs), default=None)


def _apart(loss: float, other: float) -> float:
    """Distance as a share of the first; one that is no number is infinitely far from any that is."""
    if isnan(loss) or isnan(other):
        return 0.0 if isnan(loss) and isnan(other) else inf
    return abs(loss - other) / abs(loss) if loss else abs(other)


def _losses(row: Row) -> Sequence[float]:
    """Mean over the ranks of the loss of each of the first steps, warm-up included, of the first repeat."""
    repeat = row.folder.repeat(0)
    by_rank = [islice(read_samples(repeat / f"samples.{rank}.jsonl"), COMPARED_STEPS) for rank in range(row.world_size)]
    return [fmean(sample.loss for sample in step) for step in zip(*by_rank, strict=False)]


def _explanation(first: Row, other: Row) -> str:
    one, another = (row.result.what_ran if row.result else {} for row in (first, other))
    told = [(name, one.get(name), another.get(name)) for name in EXPLAINS]
    differing = [f"{name.replace('_', ' ')} {ours} and {theirs}" for name, ours, theirs in told if ours and theirs and ours != theirs]
    return f" with {', '.join(differing)}" if differing else ""
