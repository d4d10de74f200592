"""What llmexp trace prints of a run or a trace, and of two of them."""

from __future__ import annotations

from llmexp.report.breakdown.causes import causes_table, kinds_table
from llmexp.report.breakdown.difference import difference_table, kernel_difference_table
from llmexp.report.breakdown.kernels import collectives_table, kernels_table
from llmexp.report.breakdown.limits import limits_table
from llmexp.report.breakdown.modules import module_table
from llmexp.report.breakdown.parts import Profiled
from llmexp.report.breakdown.rates import rate_tables
from llmexp.report.breakdown.server import server_table
from llmexp.report.screen import console, print_table


def show(run: Profiled) -> None:
    """Print the tables of a run or a trace, and what could not be read."""
    found = [causes_table(run), kinds_table(run), kernels_table(run), *rate_tables(run)]
    if run.breakdown.ranks[0].steps:
        modules = server_table([run], whole=True) if run.breakdown.is_server else module_table([run])
        found[1:1] = [modules, limits_table([run])]
    screen = console()
    for table in (*found, collectives_table(run)):
        if table:
            print_table(table, screen)
    for rank in run.breakdown.ranks:
        if rank.truncated or rank.odd_events:
            print(f"{rank.source}: " + _damage(rank.truncated, rank.odd_events))


def _damage(truncated: bool, odd_events: int) -> str:
    cut = ["the file is cut off within its events: the missing ones are not counted"] * truncated
    return "; ".join(
        [*cut, *[f"{odd_events} events that are damaged or have no usable times are left out"] * bool(odd_events)]
    )


def compare(a: Profiled, b: Profiled) -> None:
    """Print what makes the difference of two runs or traces."""
    screen = console()
    print(f"a: {a.name}\nb: {b.name}")
    for table in (difference_table(a, b), kernel_difference_table(a, b)):
        print_table(table, screen)
