"""The question whether servers did the same work: the greedy tokens of the same requests, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from llmexp.record.result import RunStatus
from llmexp.record.samples import read_samples
from llmexp.report.row import Row
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.report.answers import answers_of_row

Outputs = dict[tuple[int, int], list[int]]
Samples = dict[tuple[int, int], RequestSample]


def same_work_lines(rows: Sequence[Row], label: Callable[[Row], str]) -> Iterator[str]:
    """Yield a line for each run that is compared with the first one of the same requests."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.state == RunStatus.SUCCESS:
            groups.setdefault(_asked(row), []).append(row)
    for first, *others in groups.values():
        answers = answers_of(first) if others else {}
        for other in others:
            why_not = _incomparable(first, other)
            theirs = answers_of(other)
            found = compared_texts(answers, theirs) if not why_not and _as_text(answers, theirs) else ""
            found = found or compared(outputs_of(answers), outputs_of(theirs), why_not)
            yield f"same work: {label(other)} and {label(first)}: {found}{_changed((other, first), label)}"


def compared(first: Outputs, other: Outputs, why_not: str = "") -> str:
    """Say in words how far the outputs of the same requests are equal, or why that cannot be said."""
    if why_not:
        return f"outputs cannot be compared, because {why_not}"
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


def compared_texts(first: Samples, other: Samples) -> str:
    """Say how far outputs are equal as text, where a server with a usual tokenizer tells no token ids."""
    both = sorted(key for key in first.keys() & other.keys() if first[key].text and other[key].text)
    different = [key for key in both if first[key].text != other[key].text]
    if not both:
        return ""
    if not different:
        return f"all {len(both)} outputs are equal as text; a server tells no token ids"
    point, index = different[0]
    texts = first[point, index].text, other[point, index].text
    place = next(place for place in range(max(map(len, texts)) + 1) if texts[0][:place] != texts[1][:place])
    return (
        f"{len(both) - len(different)} of {len(both)} outputs are equal as text, as a server tells no token ids; the "
        f"first difference is character {place} of request {index} at load point {point + 1}"
    )


def outputs_of(answers: Samples) -> Outputs:
    """Return the tokens of each answer, where the server tells them."""
    return {key: sample.token_ids for key, sample in answers.items() if sample.token_ids is not None}


def answers_of(row: Row) -> Samples:
    """Return each whole answer of the first repeat, by load point and request."""
    repeats = row.folder.repeats()
    try:
        samples = read_samples(repeats[0] / "samples.0.jsonl", RequestSample) if repeats else []
    except (OSError, ValueError):
        return {}
    return {(sample.point, sample.index): sample for sample in samples if not sample.problem}


def _as_text(*answers: Samples) -> bool:
    return not all(outputs_of(each) for each in answers)


def _changed(rows: Sequence[Row], label: Callable[[Row], str]) -> str:
    """Say which of two servers gave other answers than its weights; empty where none is known to."""
    found = [label(row) for row in rows if (judged := answers_of_row(row)) and judged.verdict == "changed"]
    return f"; not the work of its weights, by serve.quality: {' and '.join(found)}" if found else ""


def _asked(row: Row) -> str:
    """Return what decides the requests and what their answers should be."""
    assert isinstance(row.plan, ServingPlan)
    config, serve = row.plan.config, row.plan.config.serve
    prompts = (serve.prompt, serve.output, serve.prefix, serve.texts, serve.sampling)
    return repr((config.model, config.seed, row.plan.dtype, prompts, row.plan.points))


def _incomparable(*rows: Row) -> str:
    plans = [row.plan for row in rows if isinstance(row.plan, ServingPlan)]
    if any(plan.server.weights == "none" for plan in plans):
        return "an engine drew weights of its own (serve.weights=folder)"
    return "each engine draws tokens in its own way (serve.sampling)" if plans[0].config.serve.sampling else ""
