"""How far a run has got, how fast it goes and how long it will take, from the samples that rank 0 writes."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from llmexp.launch.follow import SampleFollower
from llmexp.plan.run_plan import RunPlan
from llmexp.record.duration import duration
from llmexp.record.result import StepSample

RECENT_STEPS = 10
GIB = 1024**3


class Progress:
    """A run's advance; the estimate takes every repeat to be like the present one."""

    def __init__(self, plan: RunPlan) -> None:
        self.name = plan.name
        self.steps_per_repeat = plan.config.measure.warmup_steps + plan.config.measure.steps
        self.repeats = plan.config.measure.repeats
        self._replicas = plan.dims.dp
        self._repeat = 0
        self._steps = 0
        self._recent: deque[StepSample] = deque(maxlen=RECENT_STEPS)
        self._startup_s = 0.0

    @property
    def steps_done(self) -> int:
        """Steps of all repeats so far."""
        return self._repeat * self.steps_per_repeat + self._steps

    @property
    def steps_in_all(self) -> int:
        """Steps of all repeats."""
        return self.repeats * self.steps_per_repeat

    def begin(self, repeat: int, folder: Path) -> None:
        """Turn to a repeat that is about to start, counted from 0."""
        self._repeat, self._steps = repeat, 0
        self._recent.clear()
        self._follower = SampleFollower(folder / "samples.0.jsonl")
        self._begun_s = time.monotonic()

    def update(self) -> None:
        """Read what rank 0 has written since the last time."""
        samples = self._follower.read()
        if samples and not self._steps:
            self._startup_s = max(0.0, time.monotonic() - self._begun_s - samples[-1].t_end_s)
        self._steps += len(samples)
        self._recent.extend(samples)

    def __str__(self) -> str:
        return f"{self.name} · {self.advance}"

    @property
    def advance(self) -> str:
        """Repeat, step, rate, memory and the time left, in words."""
        repeat = f"repeat {self._repeat + 1}/{self.repeats} · " if self.repeats > 1 else ""
        if not self._recent:
            return f"{repeat}starting"
        last = self._recent[-1]
        parts = [f"step {self._steps}/{self.steps_per_repeat} ({'warm-up' if last.warmup else 'measured'})", f"{self.tokens_per_s:,.0f} tokens/s"]
        if last.memory_bytes is not None:
            parts.append(f"{last.memory_bytes / GIB:.2f} GiB")
        return f"{repeat}{' · '.join(parts)} · {duration(self.remaining_s)} left"

    @property
    def tokens_per_s(self) -> float:
        """Positions a second of all replicas over the recent steps, each taken to do what rank 0 does."""
        return self._replicas * sum(sample.positions for sample in self._recent) / self._recent_s

    @property
    def remaining_s(self) -> float:
        """Seconds until the last repeat's last step at the recent pace, starting up included."""
        step_s = self._recent_s / len(self._recent)
        startups_left = self.repeats - self._repeat - 1
        return max(0, self.steps_in_all - self.steps_done) * step_s + startups_left * self._startup_s

    @property
    def _recent_s(self) -> float:
        return max(self._recent[-1].t_end_s - self._recent[0].t_start_s, 1e-9)
