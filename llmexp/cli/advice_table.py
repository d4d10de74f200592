"""The ranking of options as text: the choice in words, then a line an option."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from llmexp.advice.goal import Goal
from llmexp.advice.losses import losses_known
from llmexp.advice.option import Option
from llmexp.advice.ranking import Ranking
from llmexp.cli.plan_table import WIDTH, aligned
from llmexp.record.digits import GIB, rounded
from llmexp.record.duration import duration
from llmexp.record.predicted import TOO_FEW
from llmexp.registry import get_task

DECIDING = 3


def advice_text(ranking: Ranking, top: int) -> str:
    """Return what to choose, and the first options as a table, without the last newline."""
    shown, perhaps = _shown(ranking.sure, top), ranking.perhaps[:DECIDING]
    lines = [*choice(ranking), "", *_table(ranking.goal, shown, perhaps), "", *legend([*perhaps, *shown])]
    if any(option.changes for option in [*shown, *perhaps]):
        first = [*shown, *perhaps][0].plan
        lines += losses_known(Path(first.config.sweep.outputs), first)
    return "\n".join(lines)


def _shown(options: Sequence[Option], top: int) -> list[Option]:
    """Return the first options, and the best of each machine that has none among them."""
    shown = [*options[:top]]
    for option in options[top:]:
        if option.machine not in {one.machine for one in shown}:
            shown.append(option)
    return shown


def choice(ranking: Ranking) -> Iterator[str]:
    """Yield what to choose, and how sure that is."""
    first = ranking.first
    assert first is not None
    sure = "" if ranking.sure else " (if it fits)"
    yield f"best by {ranking.goal.name}{sure}: llmexp {' '.join(first.plan.overrides)}"
    if lift := get_task(first.plan.config.task.name).lifted_by(first.plan):
        yield f"  what bounds it: {lift}"
    plain = next((one for one in [*ranking.sure, *ranking.perhaps] if not one.changes), None)
    if first.changes:
        yield f"  it changes the mathematics: {', '.join(first.changes)}"
        if plain:
            yield f"best without that: llmexp {' '.join(plain.plan.overrides)}"


def _table(goal: Goal, shown: Sequence[Option], perhaps: Sequence[Option]) -> list[str]:
    options = [*perhaps, *shown]
    shared = set.intersection(*(set(option.plan.overrides) for option in options)) if len(options) > 1 else set()
    numbers = ["?"] * len(perhaps) + [str(number) for number in range(1, len(shown) + 1)]
    rows = [
        [number, *cells_of(goal, option), own_words(option, shared)]
        for number, option in zip(numbers, options, strict=True)
    ]
    headers = ["#", *headers_of(goal, options), "words"]
    kept = [place for place, header in enumerate(headers) if header and any(row[place] for row in rows)]
    head, rule, *lines = aligned([[row[place] for place in kept] for row in [headers, *rows]])
    return [head, rule[:WIDTH], *lines]


def headers_of(goal: Goal, options: Sequence[Option]) -> list[str]:
    """Return the headings of what `cells_of` returns; an empty one has no column."""
    devices = "devices" if len({option.plan.devices for option in options}) > 1 else ""
    training = [goal.training.words, "USD"] if goal.training else ["", ""]
    return ["fits", devices, "tokens/s", "from", "to", "GiB", "of", *training, "tokens/USD", "most time", "changes"]


def cells_of(goal: Goal, option: Option) -> list[str]:
    """Return what is expected of an option."""
    low, high = option.interval
    fit, cost = option.fit, option.training(goal.training) if goal.training else None
    part, share = next(iter(option.bound.items()))
    return [
        option.verdict,
        str(option.plan.devices),
        rounded(option.rate),
        "measured" if option.measured else rounded(low),
        "" if option.measured else rounded(high),
        f"{fit.need / GIB:.1f}" if fit else "",
        f"{fit.capacity / GIB:.1f}" if fit else "",
        duration(cost.time_s) if cost else "",
        rounded(cost.usd) if cost and cost.usd is not None else "",
        rounded(option.tokens_per_usd) if option.tokens_per_usd else "",
        f"{part} {share:.0%}",
        ", ".join(option.changes),
    ]


def own_words(option: Option, shared: Collection[str]) -> str:
    """Return what tells an option from the others shown."""
    return " ".join(word for word in option.plan.overrides if word not in shared)


def legend(options: Sequence[Option]) -> Iterator[str]:
    """Yield what the columns mean."""
    sources = " and ".join(dict.fromkeys(option.predicted.source for option in options))
    yield (
        f"tokens/s of all devices, between the ends in which 9 of 10 measured speeds lay, by {sources}; "
        f"{options[0].predicted.page}"
    )
    if not all(option.predicted.tells_share for option in options):
        yield f"fp8 products and experts: {TOO_FEW}, so that the ends are the widest"
    yield f"GiB of a device: what an option needs, of what there is{'; ?: may not fit' * _any_uncertain(options)}"


def _any_uncertain(options: Sequence[Option]) -> bool:
    return any(option.verdict == "uncertain" for option in options)
