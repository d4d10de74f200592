"""`python -m benchmarks.verdicts`: how often the verdict of `llmexp reproduce` errs, by pairs of simulated runs whose true speeds are known.

Only step times are made up: metric, interval, stability and verdict are llmexp's own.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from llmexp.analysis.contention import Machine
from llmexp.analysis.metrics import Facts, tokens_per_s
from llmexp.analysis.stability import judge
from llmexp.analysis.window import Repeat, duration_s
from llmexp.record.result import RankSummary, Stability, StepSample
from llmexp.report.reproduction import judge_speeds

QUIET = Machine([], cores=1, wanted_cores=1)
ONE_RANK = Facts(world_size=1, dp=1)
POSITIONS = 1000
# The true speed of the second run over that of the first.
RATIOS = (1.0, 0.9, 1.1)
VERDICTS = {True: "reproduced", False: "NOT reproduced", None: "cannot tell"}
BOTH_STABLE = "both stable"


@dataclass(frozen=True)
class Measured:
    """A protocol, and how times vary where it is followed: standard deviations as shares of a step's time."""

    name: str
    repeats: int
    warmup_steps: int
    steps: int
    of_steps: float
    of_processes: float = 0.0
    """Of the mean step time between fresh processes."""
    memory: float = 0.0
    """Correlation of a step's time with that of the step before."""

    def run(self, speed: float, draw: random.Random) -> tuple[float, Stability]:
        """Measure a program that takes `speed` steps a second: its tokens/s and the verdict on them."""
        repeats = [self._repeat(draw.gauss(1, self.of_processes) / speed, draw) for _ in range(self.repeats)]
        speeds = [tokens_per_s(repeat, ONE_RANK) for repeat in repeats]
        return sum(one.value for one in speeds) / len(speeds), judge(repeats, speeds, [QUIET])

    def _repeat(self, level_s: float, draw: random.Random) -> Repeat:
        samples, end_s = [], 0.0
        for step, deviation in zip(range(self.warmup_steps + self.steps), self._deviations(draw), strict=False):
            begin_s, end_s = end_s, end_s + level_s * max(1 + deviation, 0.1)
            times = {"t_start_s": begin_s, "t_end_s": end_s}
            samples.append((StepSample(step=step, warmup=step < self.warmup_steps, positions=POSITIONS, real_tokens=POSITIONS, loss=1.0, **times),))
        measured = tuple(samples[self.warmup_steps :])
        return Repeat((_summary(sum(duration_s(step[0]) for step in measured)),), tuple(samples[: self.warmup_steps]), measured)

    def _deviations(self, draw: random.Random) -> Iterator[float]:
        deviation = draw.gauss(0, self.of_steps)
        while True:
            yield deviation
            deviation = self.memory * deviation + sqrt(1 - self.memory**2) * draw.gauss(0, self.of_steps)


def _summary(wall_s: float) -> RankSummary:
    sizes = {"parameters": None, "trainable_parameters": None, "peak_rss_bytes": 0}
    return RankSummary(rank=0, window_wall_s=wall_s, time_to_first_step_s=0.0, state_bytes={}, what_ran={}, **sizes)


QUICK, PAPER = (1, 5, 20), (3, 30, 100)
CASES = (
    Measured("quick, steps 3 %", *QUICK, of_steps=0.03),
    Measured("quick, steps 8 %", *QUICK, of_steps=0.08),
    Measured("quick, steps 3 %, processes 3 %", *QUICK, of_steps=0.03, of_processes=0.03),
    Measured("quick, steps 20 %", *QUICK, of_steps=0.2),
    Measured("paper, steps 3 %", *PAPER, of_steps=0.03),
    Measured("paper, steps 8 %, processes 1 %", *PAPER, of_steps=0.08, of_processes=0.01),
    Measured("paper, steps 8 %, processes 3 %", *PAPER, of_steps=0.08, of_processes=0.03),
    Measured("paper, steps 8 %, each depends on the last by 0.8", *PAPER, of_steps=0.08, memory=0.8),
)


def rates(case: Measured, ratio: float, pairs: int, seed: int = 0) -> dict[str, float]:
    """How often each verdict comes, and how often both runs are stable."""
    draw, counts = random.Random(seed), Counter[str]()
    for _ in range(pairs):
        (first, of_first), (second, of_second) = case.run(1.0, draw), case.run(ratio, draw)
        counts[VERDICTS[judge_speeds(second / first, of_first, of_second).reproduced]] += 1
        counts[BOTH_STABLE] += of_first.verdict == of_second.verdict == "stable"
    return {name: counts[name] / pairs for name in (*VERDICTS.values(), BOTH_STABLE)}


def main() -> int:
    """Print the rates of all protocols as a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts")
    parser.add_argument("--pairs", type=int, default=2000)
    pairs = parser.parse_args().pairs
    print(f"in %: {' / '.join(VERDICTS.values())}")
    print("| protocol and scatter | both stable | the same speed | 10 % slower | 10 % faster |", "|---|---|---|---|---|", sep="\n")
    for case in CASES:
        found = [rates(case, ratio, pairs) for ratio in RATIOS]
        cells = [" / ".join(f"{100 * one[name]:.1f}" for name in VERDICTS.values()) for one in found]
        print(f"| {case.name} | {100 * found[0][BOTH_STABLE]:.0f} % | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
