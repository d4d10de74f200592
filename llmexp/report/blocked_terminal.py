"""The comparison of two sides by blocks on a terminal: the table of sets, and what the control showed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from llmexp.analysis.many_rows import ERROR
from llmexp.report.blocked_sets import BlockedComparison
from llmexp.report.screen import console, write
from llmexp.report.sets_terminal import direction, print_sets


def print_blocked(
    found: BlockedComparison, sides: Mapping[str, str], control_row: str, file: TextIO | None = None
) -> None:
    """Print a comparison by blocks; `sides` are the names of a and b."""
    screen = console(file)
    write(screen, "; ".join(f"{letter}: {name}" for letter, name in sides.items()))
    print_sets(found.sets, file, _legend(found))
    for line in found.unstable:
        write(screen, f"unstable by themselves, which the blocks allow for: {line}", "dim")
    write(screen, _control(found, control_row))


def _legend(found: BlockedComparison) -> str:
    better, worse = direction("better", found.sets), direction("worse", found.sets)
    return (
        f"{better} or {worse}: equality is rejected (Student's t over the log ratios within blocks, with no smaller "
        f"error than the control's or the median row's, p corrected by Holm for all rows, below {ERROR:g}) and b/a is "
        f"over {found.counts_beyond:.3g} from 1; within noise: two one-sided tests show that b/a is less than "
        f"{found.sets.margin:.3g} from 1; b/a with its own 95 % interval; n blocks"
    )


def _control(found: BlockedComparison, row: str) -> str:
    if found.control is None:
        return f"control: {row} with a against itself was not measured in two blocks, so that the margin stands alone"
    low, high = found.control.ratio_interval()
    if found.counts_beyond > found.sets.margin:
        counts = f"only differences beyond the {found.counts_beyond:.1%} that it showed count"
    else:
        counts = f"which is within the margin of {found.sets.margin:.3g}"
    ratio = f"{found.control.ratio:.3f} ({low:.3f} to {high:.3f})"
    return f"control: {row} with a against itself in the same turns: {ratio}, {counts}"
