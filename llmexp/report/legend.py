"""Lines below a table of any task: what signs mean, and what holds for all its runs together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmexp.analysis.device_time import useful_fraction
from llmexp.errors import RecordError
from llmexp.report.row import OOM, Row
from llmexp.report.signs import UNKNOWN, UNSTABLE, doubt_sign, within_run
from llmexp.report.stacks import has_several_stacks, versions_of


def legend_of_signs(rows: Sequence[Row]) -> list[str]:
    """Explain the signs beside rates."""
    rates, doubts = [row.rate for row in rows if row.rate], {doubt_sign(row) for row in rows}
    return applying(
        {
            "±: standard deviation between repeats": any(rate.std_between_repeats is not None for rate in rates),
            f"± … w: standard deviation of the {_sample_name(rows)}s within the run, there being one repeat": any(
                within_run(rate) for rate in rates
            ),
            f"{UNSTABLE} unstable: do not rely on it; its note says why": UNSTABLE in doubts,
            f"{UNKNOWN} stability unknown: its note says what is missing to judge it": UNKNOWN in doubts,
        }
    )


def legend_of_runs(rows: Sequence[Row], shared: Mapping[str, str]) -> list[str]:
    """Return the lines on all runs together, whatever they measured; `shared` is the work that is the same in all."""
    runtimes = (f"runtime {runtime}: {versions}" for runtime, versions in versions_of(rows).items())
    return applying(
        {
            "; ".join(runtimes): "runtime" not in shared,
            **dict.fromkeys(how_measured(rows), True),
            "-: out of memory": any(row.state == OOM for row in rows),
            "stack: runs whose stack differs had other code, libraries or devices; rerun=stale measures "
            "them again": has_several_stacks(rows),
        }
    )


def how_measured(rows: Sequence[Row]) -> list[str]:
    """Return how much of their time these runs measured, and in which order."""
    useful = _useful(rows) or 0
    share = f"of the time that these runs held their devices, {useful:.1%} went into measured {_sample_name(rows)}s"
    return applying({share: bool(useful), _order(rows): True})


def applying(lines: Mapping[str, bool]) -> list[str]:
    """Return the lines that apply and are not empty."""
    return [line for line, applies in lines.items() if line and applies]


def small(sentence: str) -> str:
    """Return a sentence as the rest of another one: with a small first letter and no full stop."""
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _sample_name(rows: Sequence[Row]) -> str:
    return rows[0].plan.sample_name if rows else ""


def _order(rows: Sequence[Row]) -> str:
    """Say whose repeats took turns; empty where no run's did."""
    orders = [row.result.order for row in rows if row.result and row.rate and row.result.repeats > 1]
    interleaved = orders.count("interleaved")
    if not interleaved:
        return ""
    which = "all runs" if interleaved == len(orders) else f"{interleaved} of {len(orders)} runs"
    return f"order: repeats of {which} were measured in turns, so drift of the machine favors none of them"


def _useful(rows: Sequence[Row]) -> float | None:
    """Return the useful fraction of analysis.device_time; None also where a rank's summary is broken."""
    try:
        return useful_fraction((row.folder, row.result) for row in rows)
    except RecordError:
        return None
