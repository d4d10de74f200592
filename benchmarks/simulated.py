"""Simulated runs whose truth is known.

Only their step times are made up; the metric, the interval and the verdict are llmexp's own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

from llmexp.analysis.contention import Machine
from llmexp.analysis.quantity import over_repeats
from llmexp.analysis.stability import judge
from llmexp.analysis.window import Repeat, duration_s
from llmexp.record.result import Metric, Stability
from llmexp.record.samples import StepSample, TrainingSummary
from llmexp.training.metrics import tokens_per_s
from llmexp.training.repeats import RunConstants, TrainingRepeat

QUIET = Machine([], cores=1, wanted_cores=1)
ONE_RANK = RunConstants(world_size=1, dp=1)
POSITIONS = 1000
# A machine that others share has so many cores, and the run wants all of them.
CORES = 2


@dataclass(frozen=True)
class Protocol:
    """The amount that is measured, as in conf/measure."""

    name: str
    repeats: int
    warmup_steps: int
    steps: int


@dataclass(frozen=True)
class Scatter:
    """The variation of times on a machine: standard deviations as shares of a step's time."""

    of_steps: float
    memory: float = 0.0
    """Correlation of a step's time with that of the step before."""
    of_processes: float = 0.0
    """Standard deviation of the mean step time between fresh processes."""

    def __str__(self) -> str:
        dependent = f", correlation {self.memory:g}" if self.memory else ""
        return f"steps {self.of_steps:.0%}{dependent}, processes {self.of_processes:.1%}"

    def deviations(self, draw: random.Random) -> Iterator[float]:
        """Yield the deviation of one step after the other."""
        deviation = draw.gauss(0, self.of_steps)
        while True:
            yield deviation
            deviation = self.memory * deviation + sqrt(1 - self.memory**2) * draw.gauss(0, self.of_steps)


@dataclass(frozen=True)
class Simulated:
    """A program that takes `speed` steps a second and slows down over the window.

    The last third of the window takes 1 + drift times as long as its first third.
    """

    protocol: Protocol
    scatter: Scatter
    speed: float = 1.0
    drift: float = 0.0
    levels: tuple[float, ...] = ()
    """What the times of each repeat are multiplied by, where the machine's state changes between repeats."""
    taken_cores: tuple[float, ...] = ()
    """The cores of CORES that others were seen to take during each repeat, where any were sampled."""

    def run(self, draw: random.Random) -> tuple[Metric, Stability]:
        """Measure the program: return its tokens_per_s, with POSITIONS for a step, and the verdict on them."""
        metric, judged, _ = self.run_apart(draw)
        return metric, judged

    def run_apart(self, draw: random.Random) -> tuple[Metric, Stability, list[float]]:
        """Return the same, and the tokens_per_s of each repeat."""
        levels = self.levels or (1.0,) * self.protocol.repeats
        repeats = [
            self._repeat(level * draw.gauss(1, self.scatter.of_processes) / self.speed, draw) for level in levels
        ]
        speeds = [tokens_per_s(repeat, ONE_RANK) for repeat in repeats]
        metric = over_repeats(speeds)
        assert metric is not None
        judged = judge(repeats, speeds, [self._machine], "tokens_per_s")
        return metric, judged, [speed.value for speed in speeds]

    @property
    def _machine(self) -> Machine:
        taken = [({"cpu_other_cores": cores}, 5.0) for cores in self.taken_cores]
        return Machine(taken, cores=CORES, wanted_cores=CORES) if taken else QUIET

    def _repeat(self, level_s: float, draw: random.Random) -> TrainingRepeat:
        samples, end_s, first = [], 0.0, self.protocol.warmup_steps
        for step, deviation in zip(range(first + self.protocol.steps), self.scatter.deviations(draw), strict=False):
            # Thirds are two thirds of the window apart.
            drifted = (1 + self.drift) ** (1.5 * max(step - first, 0) / self.protocol.steps)
            begin_s, end_s = end_s, end_s + level_s * drifted * max(1 + deviation, 0.1)
            sample = _sample(index=step, warmup=step < first, t_start_s=begin_s, t_end_s=end_s)
            samples.append((sample,))
        measured = tuple(samples[first:])
        return Repeat((_summary(sum(duration_s(step[0]) for step in measured)),), tuple(samples[:first]), measured)


def _sample(**times: float) -> StepSample:
    # Validation is left out: it would take most of a simulation's time.
    known: dict[str, Any] = {"positions": POSITIONS, "real_tokens": POSITIONS, "loss": 1.0, **times}
    return StepSample.model_construct(**known)


def _summary(wall_s: float) -> TrainingSummary:
    sizes = {"parameters": None, "trainable_parameters": None, "peak_rss_bytes": 0}
    return TrainingSummary(rank=0, window_wall_s=wall_s, time_to_first_step_s=0.0, state_bytes={}, **sizes)
