"""The plans of a sweep as a table: one line a run, with whether it fits and what it is expected to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmexp.answers.planned import PlannedFailures
from llmexp.cli.plan_answer import budget_cost, fit_of_plan, is_moot, of_device, short_reason
from llmexp.launch.preflight import certain_skip
from llmexp.record.digits import GIB, rounded
from llmexp.record.duration import duration
from llmexp.record.predicted import TOO_FEW
from llmexp.report.training_budget import TrainingBudget, TrainingCost
from llmexp.sweep.cost import Cost, Speed

# Lines stay below this many characters; only reasons, which have lines of their own, may be longer.
WIDTH = 100
GAP = "  "
PREDICTED = "predicted"
COUNTS = "counts"
FAILING = f"{COUNTS}: simulated share of the training's time that counts; its time and USD are with failures"


def plan_table(
    costs: Sequence[Cost],
    budget: TrainingBudget | None = None,
    failing: Sequence[PlannedFailures | None] = (),
) -> str:
    """Return the table, its notes, and what the numbers are taken from, without the last newline.

    A training budget adds its time and its money, `failing` the share of that time that counts in spite of failures.
    """
    notes: list[str] = []
    headers = ["#", *costs[0].plan.name_fields, "", "fits", "needs", "to", "of GiB", _rate(costs)]
    headers += [PREDICTED, "time"]
    headers += [f"{budget.words}" if budget else "", "USD", COUNTS, "note"]
    of = failing or [None] * len(costs)
    rows = [
        [str(number), *_cells(costs[number - 1], notes, budget, of[number - 1])] for number in range(1, len(of) + 1)
    ]
    kept = [place for place, header in enumerate(headers) if header in _STAYING or any(row[place] for row in rows)]
    table = aligned([[row[place] for place in kept] for row in [headers, *rows]])
    told = [FAILING] if any(failing) else []
    return "\n".join([*table, *_legend(costs), *told, *(f"({number}) {note}" for number, note in enumerate(notes, 1))])


_STAYING = ("#", "fits")


def _cells(cost: Cost, notes: list[str], budget: TrainingBudget | None, failing: PlannedFailures | None) -> list[str]:
    plan, fit, skip = cost.plan, fit_of_plan(cost.plan), certain_skip(cost.plan)
    own = own_speed(cost)
    taken = budget_cost(cost, budget) if budget and (own or plan.predicted) else None
    asked = _training(taken, failing) if taken else ["", "", ""]
    sizes = [f"{size / GIB:.1f}" for size in (fit.need, fit.most, fit.capacity)] if fit else ["", "", ""]
    speed = rounded(own.per_device) if own else ""
    held = f"{cost.sign}{duration(cost.held_s)}" if cost.held_s else "none" if cost.held_s == 0 else "?"
    predicted = "" if skip else of_device(cost)[0]
    verdict: str = fit.verdict if fit else "?"
    if is_moot(plan, skip):
        verdict, sizes = "-", ["", "", ""]
    mark = _mark(short_reason(skip), notes)
    return [*plan.name_fields.values(), plan.label, verdict, *sizes, speed, predicted, held, *asked, mark]


def _training(taken: TrainingCost, failing: PlannedFailures | None) -> list[str]:
    """Return the time and the money of a training, with failures where they are simulated, and what of it counts."""
    share = failing.useful_share if failing else 1.0
    money = "" if taken.usd is None else rounded(taken.usd / share)
    return [duration(taken.time_s / share), money, f"{100 * share:.3g} %" if failing else ""]


def own_speed(cost: Cost) -> Speed | None:
    """Return the speed that a line may show: a table does not name the cell of another batch or length."""
    return cost.speed if cost.speed and not cost.speed.elsewhere else None


def _mark(reason: str, notes: list[str]) -> str:
    """Return the number of a reason for a skip, which is noted once."""
    if not reason:
        return ""
    if reason not in notes:
        notes.append(reason)
    return f"skip ({notes.index(reason) + 1})"


def _legend(costs: Sequence[Cost]) -> list[str]:
    """Return where the speeds come from, and what the columns of memory are."""
    by = dict.fromkeys(speed.by.partition(" (")[0] for cost in costs if (speed := own_speed(cost)))
    memory = "GiB of a device: what a run needs, to what its allocator may waste, of what there is; docs/numbers.md"
    told = [memory] if any(fit_of_plan(cost.plan) for cost in costs) else []
    return [
        "",
        *told,
        *([f"{costs[0].plan.rate_unit} of a device: by {'; by '.join(by)}"] if by else []),
        *_bases(costs),
    ]


def _bases(costs: Sequence[Cost]) -> Iterator[str]:
    """Yield what predictions go by, and how far off nine of ten such predictions were at most."""
    found = [cost.plan.predicted for cost in costs if cost.plan.predicted and not certain_skip(cost.plan)]
    told = dict.fromkeys((one.source, *(f"{end:.2f}" for end in one.holds), one.tells_share, one.page) for one in found)
    for source, low, high, tells_share, page in told:
        ends = f"{low} to {high} times that{' in 9 of 10 runs' if tells_share else f'; {TOO_FEW}'}"
        yield f"{PREDICTED}: {costs[0].plan.rate_unit} of a device by {source}, {ends}; {page}"


def _rate(costs: Sequence[Cost]) -> str:
    return costs[0].plan.rate_unit


def aligned(rows: list[list[str]]) -> list[str]:
    """Return lines with their columns aligned: words to the left, numbers to the right."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    left = [
        not any(cell[:1].isdigit() for cell in column[1:]) or column[0] in ("method", "model") for column in columns
    ]
    lines = [
        GAP.join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "─" * max(map(len, lines)), *lines[1:]]
