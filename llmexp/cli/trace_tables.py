"""What llmexp trace prints of a run or a trace, and of two of them."""

from __future__ import annotations

from llmexp.report.breakdown.causes import causes_detail, kinds_detail
from llmexp.report.breakdown.difference import difference_detail, kernel_difference_detail
from llmexp.report.breakdown.kernels import collectives_detail, kernels_detail
from llmexp.report.breakdown.limits import limits_detail
from llmexp.report.breakdown.modules import module_detail
from llmexp.report.breakdown.parts import Profiled
from llmexp.report.breakdown.rates import rate_details
from llmexp.report.breakdown.server import server_detail
from llmexp.report.screen import console, print_detail


def show(run: Profiled) -> None:
    """Print the tables of a run or a trace, and what could not be read."""
    found = [causes_detail(run), kinds_detail(run), kernels_detail(run), *rate_details(run)]
    if run.breakdown.ranks[0].steps:
        modules = server_detail([run], whole=True) if run.breakdown.is_server else module_detail([run])
        found[1:1] = [modules, limits_detail([run])]
    screen = console()
    for detail in (*found, collectives_detail(run)):
        if detail:
            print_detail(detail, screen)
    for rank in run.breakdown.ranks:
        if rank.truncated or rank.odd_events:
            print(f"{rank.source}: " + _damage(rank.truncated, rank.odd_events))


def _damage(truncated: bool, odd_events: int) -> str:
    cut = ["the file ends within its events: what is missing is not counted"] * truncated
    return "; ".join(
        [*cut, *[f"{odd_events} events that are damaged or have no usable times are left out"] * bool(odd_events)]
    )


def compare(a: Profiled, b: Profiled) -> None:
    """Print what makes the difference of two runs or traces."""
    screen = console()
    print(f"a: {a.name}\nb: {b.name}")
    for detail in (difference_detail(a, b), kernel_difference_detail(a, b)):
        print_detail(detail, screen)
