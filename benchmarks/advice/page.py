"""The page of evidence for advice, in sections that are written one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.advice.choices import Choice, found
from benchmarks.advice.held_out import BEST, METHOD, PLATFORM
from benchmarks.advice.suite import ALONE_WITHIN, FIRST, WITHIN
from llmexp.analysis.inference import wilson
from llmexp.record.digits import rounded

# What is shown of each choice.
_SHOWN = (METHOD, BEST, PLATFORM)
HEAD = """\
# Advice: the evidence

Would advice have named what others found to be best? `python -m benchmarks.advice` writes this page, and with the word
`methods`, `layouts`, `recipes` or `sizes` one section of it. `python -m benchmarks advice` judges the first section by
floors.
"""
_CHOICES = """\
A choice is a table of arXiv 2311.03687v2, a model and a machine with at least four measured methods. Tables III, IV and
IX have 22. The methods are ranked by predicted tokens/s, without those that the plan says do not fit. The rows differ
in what the fit had not seen. Intervals are Wilson's, of 95 %.

Advice compares options by one fit, as all rows but the first do. There each method has a fit of its own, so that two
methods differ by the errors of two fits, and F is often ranked behind its absence.
"""
_COLUMNS = """\
| predicted | choices | best of the first three within 3 % | first within 5 % |
|---|---:|---:|---:|"""


def whole(sections: Mapping[str, str]) -> str:
    """Return the page with these sections."""
    return "\n".join([HEAD, *(f"## {title}\n\n{text.strip()}\n" for title, text in sections.items())])


def sections_of(page: str) -> dict[str, str]:
    """Return the sections of a page by their titles."""
    parts = (part.partition("\n") for part in page.split("\n## ")[1:])
    return {title: text.strip() for title, _, text in parts}


def choices_part(even: Mapping[str, Sequence[Choice]], odd: Mapping[str, Sequence[Choice]]) -> Iterator[str]:
    """Yield the shares by what the fit had not seen, without and with odd cells, and the choices that were missed."""
    yield _CHOICES
    yield _COLUMNS
    for name, choices in even.items():
        yield _shares(name, choices)
    yield from ["", "The same with the cells of the paper that contradict others:", "", _COLUMNS]
    for name, choices in odd.items():
        yield _shares(name, choices)
    for name in _SHOWN:
        yield from ["", f"Choices that were missed, {name}:", "", *_missed(even[name])]


def _shares(name: str, choices: Sequence[Choice]) -> str:
    three, alone = found(choices, FIRST, WITHIN), found(choices, 1, ALONE_WITHIN)
    return f"| {name} | {len(choices)} | {share(three, len(choices))} | {share(alone, len(choices))} |"


def _missed(choices: Sequence[Choice]) -> Iterator[str]:
    yield "| choice | methods | first three, predicted tokens/s | measured best | of three | first |"
    yield "|---|---:|---|---|---:|---:|"
    for choice in choices:
        if choice.reached(1) < 1 - ALONE_WITHIN or choice.reached(FIRST) < 1 - WITHIN:
            first = ", ".join(f"{one.method} {rounded(one.predicted)}" for one in choice.ranked[:FIRST])
            best = f"{choice.best.method} {rounded(choice.best.measured)}"
            shares = f"{choice.reached(FIRST):.3f} | {choice.reached(1):.3f}"
            yield f"| {choice.name} | {len(choice.options)} | {first} | {best} | {shares} |"


def share(count: int, of: int) -> str:
    """Return a count with its percentage and the interval of that."""
    low, high = wilson(count / of, of)
    return f"{count} ({100 * count / of:.0f} %, {100 * low:.0f} to {100 * high:.0f})"
