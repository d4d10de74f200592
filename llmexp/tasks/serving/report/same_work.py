"""Whether servers did the same work: the greedy tokens of the same requests, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from llmexp.plan.serving_plan import ServingPlan
from llmexp.record.requests import RequestSample
from llmexp.record.result import RunStatus
from llmexp.record.samples import read_samples
from llmexp.report.row import Row

Outputs = dict[tuple[int, int], list[int]]


def same_work_lines(rows: Sequence[Row], label: Callable[[Row], str]) -> Iterator[str]:
    """Yield a line for each run that is compared with the first one of the same requests."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.state == RunStatus.SUCCESS:
            groups.setdefault(_asked(row), []).append(row)
    for first, *others in groups.values():
        outputs = outputs_of(first) if others else {}
        for other in others:
            found = compared(outputs, outputs_of(other), _own(first, other))
            yield f"same work: {label(other)} and {label(first)}: {found}"


def compared(first: Outputs, other: Outputs, own_weights: bool) -> str:
    """Say in words how far the outputs of the same requests are equal."""
    if own_weights:
        return "outputs cannot be compared, because an engine drew weights of its own (serve.weights=folder)"
    both = sorted(first.keys() & other.keys())
    if not both:
        return "outputs cannot be compared, because a server tells no token ids"
    different = [key for key in both if first[key] != other[key]]
    if not different:
        return f"all {len(both)} outputs are equal, token by token"
    point, index = different[0]
    pairs = enumerate(zip_longest(first[point, index], other[point, index]), 1)
    place, (one, another) = next((place, pair) for place, pair in pairs if len(set(pair)) > 1)
    return (
        f"{len(both) - len(different)} of {len(both)} outputs are equal, token by token; the first difference is token "
        f"{place} of request {index} at load point {point + 1}: {one} there, {another} here"
    )


def outputs_of(row: Row) -> Outputs:
    """Return the tokens of each whole answer of the first repeat, by load point and request."""
    repeats = row.folder.repeats()
    try:
        samples = read_samples(repeats[0] / "samples.0.jsonl", RequestSample) if repeats else []
    except (OSError, ValueError):
        return {}
    return {
        (sample.point, sample.index): sample.token_ids
        for sample in samples
        if sample.token_ids is not None and not sample.problem
    }


def _asked(row: Row) -> str:
    """Return what decides the requests and what their answers should be."""
    assert isinstance(row.plan, ServingPlan)
    config, serve = row.plan.config, row.plan.config.serve
    return repr((config.model, config.seed, row.plan.dtype, serve.prompt, serve.output, serve.prefix, row.plan.points))


def _own(*rows: Row) -> bool:
    return any(isinstance(row.plan, ServingPlan) and row.plan.server.weights == "none" for row in rows)
