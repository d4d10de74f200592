"""What a run measured of each question of the paper's tables: milliseconds a step and a percentage."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from llmexp.paper.printed import breakdowns as paper
from llmexp.paper.printed.breakdowns import REST, WHOLE, PaperFigure
from llmexp.record import ranges
from llmexp.record.breakdown import Breakdown, RunBreakdown
from llmexp.report.breakdown.parts import COMMUNICATION, TOTAL, BreakdownPart, parts_ms, step_ms

MLP_PARTS = (ranges.GATE, ranges.UP, ranges.GATE_AND_UP, ranges.ACTIVATION, ranges.DOWN, ranges.MLP)
# The paper's names where they are not ours.
MODULE_PARTS = {
    "MLP": MLP_PARTS,
    "Linear": (ranges.LM_HEAD,),
    "non-overlapping communication": (COMMUNICATION,),
}
_ALL_REDUCE = re.compile("all_?reduce", re.IGNORECASE)


@dataclass(frozen=True)
class Ours:
    """Milliseconds a step, and a percentage; None where the run has no such thing, or the table no such column."""

    time_ms: float | None = None
    percent: float | None = None


@dataclass(frozen=True)
class MeasuredTimes:
    """A run's breakdown, and its model's number of layers where the configuration tells it."""

    breakdown: RunBreakdown
    layers: int | None

    @cached_property
    def parts(self) -> dict[BreakdownPart, float]:
        """Milliseconds of each part of each phase."""
        return parts_ms(self.breakdown)

    @cached_property
    def step_ms(self) -> float:
        """Milliseconds of a profiled step."""
        return step_ms(self.breakdown)

    def mean_ms(self, time_ns: Callable[[Breakdown], int]) -> float:
        """Return the milliseconds a step of some nanoseconds of each rank, as a mean over ranks."""
        return fmean(time_ns(rank) / rank.counted_steps / 1e6 for rank in self.breakdown.ranks)

    def of_step(self, time_ms: float) -> Ours:
        """Return a time with its share of the step."""
        return Ours(time_ms, 100 * time_ms / self.step_ms)

    def of_phase(self, time_ms: float, phase: str) -> Ours:
        """Return a time with its share of a phase; the empty figure where the run has no such phase."""
        whole_ms = self.parts.get((phase, TOTAL))
        return Ours(time_ms, 100 * time_ms / whole_ms) if whole_ms else Ours()


def measured(number: str, figure: PaperFigure, run: MeasuredTimes, naive: MeasuredTimes | None = None) -> Ours:
    """Return what a run has in place of a figure of the table with this number; `naive` is the run without methods."""
    return _attention(figure, run, naive) if number == paper.ATTENTION else _QUESTIONS[number](figure, run)


def _phase(figure: PaperFigure, run: MeasuredTimes) -> Ours:
    phase, part = figure.labels
    if phase == REST:
        known = [run.parts.get((name, TOTAL)) for name in ("forward", "backward", "optimizer")]
        return run.of_step(run.step_ms - sum(filter(None, known))) if all(known) else Ours()
    if part == WHOLE:
        whole_ms = run.parts.get((phase, TOTAL))
        return run.of_step(whole_ms) if whole_ms else Ours()
    computing = run.mean_ms(lambda rank: sum(each.compute_ns for each in rank.phases if each.phase == phase))
    return run.of_phase(computing, phase)


def _module(figure: PaperFigure, run: MeasuredTimes) -> Ours:
    phase, name = figure.labels
    if name == REST:
        counted = {part for each in paper.modules_of(phase) for part in MODULE_PARTS.get(each, (each,))}
        left = (time for (of, part), time in run.parts.items() if of == phase and part not in (*counted, TOTAL))
        return run.of_phase(sum(left), phase)
    found = [run.parts[phase, part] for part in MODULE_PARTS.get(name, (name,)) if (phase, part) in run.parts]
    return run.of_phase(sum(found), phase) if found else Ours()


def _attention(figure: PaperFigure, run: MeasuredTimes, naive: MeasuredTimes | None) -> Ours:
    phase = figure.labels[0]
    own, before = attention_ms(run, phase), attention_ms(naive, phase) if naive else None
    return Ours(own, 100 * (1 - own / before) if figure.percent is not None and own and before else None)


def attention_ms(run: MeasuredTimes, phase: str) -> float | None:
    """Return the milliseconds of computation in the attention module of one layer, what is recomputed left out."""
    if not run.layers:
        return None
    whole = run.mean_ms(
        lambda rank: sum(
            each.exclusive_ns
            for each in rank.modules
            if each.phase == phase and ranges.ATTENTION in each.path and not each.recomputed
        )
    )
    return whole / run.layers or None


def _gemms(figure: PaperFigure, run: MeasuredTimes) -> Ours:
    phase = figure.labels[1]
    found = run.mean_ms(lambda rank: sum(each.gemm_ns for each in rank.phases if each.phase == phase))
    return Ours(percent=run.of_phase(found, phase).percent)


def _copies(figure: PaperFigure, run: MeasuredTimes) -> Ours:
    if not any(rank.on_device for rank in run.breakdown.ranks):
        return Ours()
    return run.of_step(run.mean_ms(lambda rank: rank.copy_ns))


def _communication(figure: PaperFigure, run: MeasuredTimes) -> Ours:
    return run.of_step(run.mean_ms(lambda rank: rank.communication_ns))


def _all_reduce(figure: PaperFigure, run: MeasuredTimes) -> Ours:
    found = sum(each.work_ns for each in run.breakdown.collectives if _ALL_REDUCE.search(each.name))
    return run.of_step(found / run.breakdown.ranks[0].counted_steps / 1e6)


_QUESTIONS: dict[str, Callable[[PaperFigure, MeasuredTimes], Ours]] = {
    paper.PHASES: _phase,
    paper.PHASES_RECOMPUTING: _phase,
    paper.MODULES: _module,
    paper.GEMMS: _gemms,
    paper.COPIES: _copies,
    paper.ALL_REDUCE: _all_reduce,
    paper.COMMUNICATION: _communication,
}
