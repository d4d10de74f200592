"""Multipliers of a step's terms, fitted to runs that a machine has measured: one for each class of terms.

They are fitted on logarithms. Each is drawn to 1, so that one run moves it partly and several move it fully. Errors far
beyond the usual count less, so that one odd run decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt

from llmexp.training.predict.rates import Rates

COMPUTING, LAUNCHES, COMMUNICATION, UPDATE, HOST = "computing", "launches", "communication", "update", "host"
# The spread of each multiplier's logarithm over machines that is to be expected: links and hosts differ most.
SPREADS = {COMPUTING: 0.2, LAUNCHES: 0.7, COMMUNICATION: 0.7, UPDATE: 0.4, HOST: 1.0}
# The usual error of a calibrated prediction; errors beyond it weigh less than their squares.
_USUAL = 0.2
# The rates of each class, and the power of its multiplier that each of them takes.
_RATES = {
    COMPUTING: {
        "products_share": -1,
        "fp8_share": -1,
        "cast_accesses": 1,
        "attention_share": -1,
        "elementwise": 1,
        "score_bytes": 1,
        "dequantized_bytes": 1,
    },
    LAUNCHES: {"launch_s": 1},
    COMMUNICATION: {
        "link_bytes_per_s": -1,
        "tensor_bytes_per_s": -1,
        "context_bytes_per_s": -1,
        "expert_bytes_per_s": -1,
        "stage_bytes_per_s": -1,
        "zero3_layer_s": 1,
    },
    UPDATE: {"fused_update": 1, "unfused_update": 1},
    HOST: {"host_s_per_parameter": 1, "fetch_s": 1},
}
_ROUNDS, _ENOUGH, _NUDGE, _LONGEST = 30, 1e-5, 1e-4, 0.7
Multipliers = Mapping[str, float]


@dataclass(frozen=True)
class Evidence:
    """What one measured run tells: the seconds of its step, and those that are predicted with some multipliers."""

    step_s: float
    predicted_s: Callable[[Multipliers], float]

    def error(self, multipliers: Multipliers) -> float:
        """Return the logarithm of predicted over measured seconds."""
        return log(self.predicted_s(multipliers) / self.step_s)


def calibrated(rates: Rates, multipliers: Multipliers) -> Rates:
    """Return the rates of a machine whose terms take these multiples of their time; a class without one keeps its."""
    changed = {
        name: getattr(rates, name) * multipliers.get(group, 1.0) ** power
        for group, powers in _RATES.items()
        for name, power in powers.items()
    }
    return replace(rates, **changed)


def multipliers_of(runs: Sequence[Evidence], start: Multipliers | None = None) -> dict[str, float]:
    """Return the multiplier of each class by Gauss-Newton steps; those that no run tells anything of are 1."""
    logs = [log((start or {}).get(name, 1.0)) for name in SPREADS]
    for _ in range(_ROUNDS if runs else 0):
        step = [max(-_LONGEST, min(_LONGEST, by)) for by in _step(runs, logs)]
        logs = [at + by for at, by in zip(logs, step, strict=True)]
        if max(map(abs, step)) < _ENOUGH:
            break
    return _named(logs)


def _named(logs: Sequence[float]) -> dict[str, float]:
    return {name: exp(at) for name, at in zip(SPREADS, logs, strict=True)}


def _step(runs: Sequence[Evidence], logs: Sequence[float]) -> list[float]:
    """Return the step to the least of squares, with the weights that make it robust."""
    size, spreads = len(logs), list(SPREADS.values())
    square = [[(i == j) / spreads[i] ** 2 for j in range(size)] for i in range(size)]
    right = [-at / spread**2 for at, spread in zip(logs, spreads, strict=True)]
    for run in runs:
        error = run.error(_named(logs))
        slopes = [(run.error(_named(_nudged(logs, i))) - error) / _NUDGE for i in range(size)]
        weight = 1 / (_USUAL**2 * sqrt(1 + (error / _USUAL) ** 2))
        for i in range(size):
            right[i] -= weight * error * slopes[i]
            square[i] = [at + weight * slopes[i] * slope for at, slope in zip(square[i], slopes, strict=True)]
    return _solved(square, right)


def _nudged(logs: Sequence[float], place: int) -> list[float]:
    return [at + _NUDGE * (index == place) for index, at in enumerate(logs)]


def _solved(square: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve equations with a positive definite matrix by elimination."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(square, right, strict=True)]
    for i in range(size):
        for j in range(i + 1, size):
            share = rows[j][i] / rows[i][i]
            rows[j] = [below - share * above for below, above in zip(rows[j], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found
