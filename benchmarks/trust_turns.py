"""How often equal sides are called different where repeats depend on each other: two sets, and two sides in turns.

Each noise is a series of logarithms of speed over time, one value for each measurement. Two sets are taken one after
the other, each row's repeats back to back; two sides take the turns that `llmexp ab` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.figure import Figure
from benchmarks.rates import rate
from llmexp.analysis.blocked import blocked_verdicts, over_blocks
from llmexp.analysis.many_rows import MARGIN, Answer, verdicts
from llmexp.record.result import Metric
from llmexp.sweep.ab.turns import CONTROL, A, B, SideTurn, blocks

Values = np.ndarray[Any, np.dtype[np.float64]]
# (random numbers, sweeps, measurements, repeats of a run) -> logarithms, of shape (sweeps, measurements).
Noise = Callable[[np.random.Generator, tuple[int, int], int], Values]
# For each sweep the answers on its rows.
Answers = list[list[Answer]]
SLOWDOWN = 0.05
# Of the noise of other rows.
QUIET = 0.02


def independent(rng: np.random.Generator, shape: tuple[int, int], repeats: int) -> Values:
    """Deviate by 3 %, each measurement by itself."""
    return 0.03 * rng.normal(size=shape)


def lasting(rng: np.random.Generator, shape: tuple[int, int], repeats: int) -> Values:
    """Be 5 % slower in a state that lasts for a run's repeats, and comes half of the time."""
    slow = rng.integers(0, 2, (shape[0], shape[1] // repeats + 1))
    return -0.05 * np.repeat(slow, repeats, axis=1)[:, : shape[1]] + 0.005 * rng.normal(size=shape)


def autoregressive(rng: np.random.Generator, shape: tuple[int, int], repeats: int) -> Values:
    """Deviate by 3 %, with a correlation of 0.8 between neighboring measurements."""
    values = rng.normal(size=shape)
    for place in range(1, shape[1]):
        values[:, place] = 0.8 * values[:, place - 1] + 0.6 * values[:, place]
    return 0.03 * values


def bimodal(rng: np.random.Generator, shape: tuple[int, int], repeats: int) -> Values:
    """Be a process that is fast or 5 % slower, each by chance, whatever the one before it was."""
    return -0.05 * rng.integers(0, 2, shape) + 0.003 * rng.normal(size=shape)


def drifting(rng: np.random.Generator, shape: tuple[int, int], repeats: int) -> Values:
    """Lose 10 % evenly from the first measurement to the last, and deviate by 0.5 %."""
    return np.linspace(0, -0.1, shape[1]) + 0.005 * rng.normal(size=shape)


NOISES: dict[str, Noise] = {
    "independent, 3 %": independent,
    "a state that lasts for a run": lasting,
    "correlation 0.8": autoregressive,
    "bimodal processes": bimodal,
    "a drift of 10 %": drifting,
}


@dataclass(frozen=True)
class Compared:
    """Two sides of so many rows and repeats; the second runs its first `slower` rows at `speed`.

    Measurements of the first row, which has the control, have `first_share` of the noise of the others.
    """

    rows: int
    repeats: int
    noise: Noise
    slower: int = 0
    speed: float = 1 - SLOWDOWN
    first_share: float = 1.0

    def shifts(self) -> Values:
        """Return the logarithms by which the rows of the second side differ."""
        return np.log(np.where(np.arange(self.rows) < self.slower, self.speed, 1.0))


def turn_verdicts(tries: int) -> Iterator[Figure]:
    """Yield the rates of false alarms of both ways beside each other, and what turns find."""
    for rows, repeats in ((1, 6), (8, 4), (8, 6)):
        told = f"{rows} rows, {repeats} repeats"
        for name, noise in NOISES.items():
            yield from _alarms(f"{told}, {name}", Compared(rows, repeats, noise), tries)
        if rows > 1:
            case = Compared(rows, repeats, bimodal, first_share=QUIET)
            yield from _alarms(f"{told}, bimodal processes but for the control's row", case, tries)
    for repeats in (4, 6, 8):
        yield from _found(repeats, tries)


def _alarms(told: str, case: Compared, tries: int) -> Iterator[Figure]:
    for way, answers, limit in (("sets", of_sets, None), ("in turns", in_turns, 5)):
        false = sum(bool({"lower", "higher"} & set(each)) for each in answers(case, tries))
        yield rate(f"equal {way} with any row called different: {told}", false, tries, limit=limit)


def _found(repeats: int, tries: int) -> Iterator[Figure]:
    """Rate slowdowns of one row of eight, of the margin, and equal rows, with a deviation of 1 %."""
    told = f"in turns: 8 rows, {repeats} repeats, deviation 1 %"

    def quiet(rng: np.random.Generator, shape: tuple[int, int], repeats: int) -> Values:
        return 0.01 * rng.normal(size=shape)

    for slowdown in (SLOWDOWN, 2 * SLOWDOWN):
        one = in_turns(Compared(8, repeats, quiet, slower=1, speed=1 - slowdown), tries)
        seen = sum(answers[0] == "lower" for answers in one)
        yield rate(f"{slowdown:.0%} slower called slower, one row {told}", seen, tries)
    edge = _flat(in_turns(Compared(8, repeats, quiet, slower=8, speed=1 / (1 + MARGIN)), tries))
    yield rate(f"slower by the margin called within noise {told}", edge.count("within"), len(edge), limit=5)
    equal = _flat(in_turns(Compared(8, repeats, quiet), tries))
    yield rate(f"equal called within noise {told}", equal.count("within"), len(equal))


def _flat(sweeps: Answers) -> list[Answer]:
    return [answer for answers in sweeps for answer in answers]


def of_sets(case: Compared, sweeps: int) -> Answers:
    """Return the answers on the rows of each pair of sets, measured one set after the other."""
    noise = case.noise(np.random.default_rng(0), (sweeps, 2 * case.rows * case.repeats), case.repeats)
    logs = noise.reshape(sweeps, 2, case.rows, case.repeats)
    logs[:, :, 0] *= case.first_share
    logs[:, 1] += case.shifts()[:, None]
    return [
        [one.answer for one in verdicts([(_metric(a), _metric(b)) for a, b in zip(*sides, strict=True)])]
        for sides in np.exp(logs)
    ]


def _metric(values: Values) -> Metric:
    return Metric(mean=float(values.mean()), std_between_repeats=float(values.std(ddof=1)), n=len(values))


def in_turns(case: Compared, sweeps: int) -> Answers:
    """Return the answers on the rows of each comparison by blocks, with the first row as the control."""
    planned = list(blocks(case.repeats, case.rows, control=1))
    turns = {turn: place for place, turn in enumerate(turn for block in planned for turn in block.turns)}
    shares = np.array([case.first_share if turn.row == 1 else 1.0 for turn in turns])
    shifts = case.shifts()
    found: Answers = []
    for speeds in np.exp(shares * case.noise(np.random.default_rng(0), (sweeps, len(turns)), case.repeats)):

        def speed(turn: SideTurn, speeds: Values = speeds) -> float:
            shift = shifts[turn.row - 1] if turn.measures == B else 0.0
            return float(speeds[turns[turn]] * np.exp(shift))

        rounds = range(1, case.repeats + 1)
        rows = [
            [(speed(SideTurn(k, row, A)), speed(SideTurn(k, row, B))) for k in rounds]
            for row in range(1, case.rows + 1)
        ]
        control = over_blocks([(speed(SideTurn(k, 1, A)), speed(SideTurn(k, 1, CONTROL))) for k in rounds])
        found.append([one.answer for one in blocked_verdicts(rows, control)])
    return found
