"""A run's progress, rate and remaining time, computed from the samples that rank 0 writes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from llmexp.launch.follow import SampleFollower
from llmexp.launch.no_steps_hint import no_steps_hint
from llmexp.launch.turns import Order
from llmexp.record.digits import GIB, rounded, three_digits
from llmexp.record.duration import duration
from llmexp.record.plan import RunPlan
from llmexp.record.printed import Logs, Output
from llmexp.record.samples import Sample
from llmexp.registry import get_task

# After this much printing without a step, the program is taken to report no steps to llmexp.
UNHEARD_AFTER_S = 30.0
FEWEST = 10


class Progress:
    """The progress of a run; its estimate assumes that every repeat is like the present one.

    The time that is left of an interleaved run is that of the present repeat, as other runs come next.
    """

    def __init__(self, plan: RunPlan, order: Order = "run_by_run") -> None:
        self._plan, self.name, self._order = plan, plan.name, order
        self.steps_per_repeat = plan.samples
        self.repeats = plan.config.measure.repeats
        self._repeat = 0
        self._steps = 0
        self._recent = Recent()
        self._startup_s = 0.0
        self._logs: Logs | None = None
        self._printing_since_s: float | None = None

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
        self._follower = SampleFollower(folder / "samples.0.jsonl", get_task(self._plan.config.task.name).sample_type)
        self._begun_s = time.monotonic()
        # llmexp's own loops always report their steps.
        self._logs, self._printing_since_s = Logs(folder) if no_steps_hint(self._plan, Output()) else None, None

    def update(self) -> None:
        """Read what rank 0 has written since the last time."""
        samples = self._follower.read()
        if samples and not self._steps:
            self._startup_s = max(0.0, time.monotonic() - self._begun_s - samples[-1].t_end_s)
        self._steps += len(samples)
        self._recent.extend(samples)
        if self._logs and not self._steps and self._logs.read().lines and self._printing_since_s is None:
            self._printing_since_s = time.monotonic()

    def __str__(self) -> str:
        return f"{self.name} · {self.advance}"

    @property
    def advance(self) -> str:
        """Repeat, step, rate, memory and remaining time, in words."""
        repeat = f"repeat {self._repeat + 1}/{self.repeats} · " if self.repeats > 1 else ""
        if not self._recent:
            return f"{repeat}starting{self._unheard}"
        last = self._recent.last
        parts = [
            f"{self._plan.sample_name} {self._steps}{f'/{self.steps_per_repeat}' if self.steps_per_repeat else ''} "
            f"({'warm-up' if last.warmup else 'measured'})",
            *([f"{rounded(self.rate)} {self._plan.rate_unit}"] if self._plan.rate else []),
        ]
        if last.memory_bytes is not None:
            parts.append(f"{three_digits(last.memory_bytes / GIB, '.2f')} GiB")
        if self.steps_per_repeat:
            parts.append(f"{duration(self.remaining_s)} left" if self._steps_left else "ending")
        return f"{repeat}{' · '.join(parts)}"

    @property
    def _unheard(self) -> str:
        """The likely reason for a missing first step, after the ranks have printed for long; empty before."""
        if (
            self._logs is None
            or self._printing_since_s is None
            or time.monotonic() - self._printing_since_s < UNHEARD_AFTER_S
        ):
            return ""
        return f" · no step reported yet: {no_steps_hint(self._plan, self._logs.output)}"

    @property
    def rate(self) -> float:
        """Amount done per second over the recent steps, assuming that each replica does as much as rank 0."""
        return self._plan.replicas * self._recent.amount / self._recent.seconds

    @property
    def remaining_s(self) -> float:
        """Seconds until the last repeat's last step at the recent pace, start-ups included."""
        return self._steps_left * self._recent.seconds / len(self._recent) + self._repeats_left * self._startup_s

    @property
    def _repeats_left(self) -> int:
        return 0 if self._order == "interleaved" else self.repeats - self._repeat - 1

    @property
    def _steps_left(self) -> int:
        return max(0, self.steps_per_repeat - self._steps) + self._repeats_left * self.steps_per_repeat


class Recent:
    """The last FEWEST samples, and all that ended while the last one took its time.

    Steps end one after the other. Requests are under way together: those that end in a second are as many as a server
    answers in a second, however long each has waited, and those of one batch end at the same moment.
    """

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._begin_s = 0.0

    def __len__(self) -> int:
        return len(self._samples)

    def clear(self) -> None:
        """Forget all samples."""
        self._samples.clear()

    def extend(self, samples: Iterable[Sample]) -> None:
        """Take further samples, in the order in which they ended."""
        for sample in samples:
            if not self._samples:
                self._begin_s = sample.t_start_s
            self._samples.append(sample)
            while len(self) > FEWEST and self._samples[0].t_end_s <= sample.t_start_s:
                self._begin_s = self._samples.popleft().t_end_s

    @property
    def last(self) -> Sample:
        """The sample that ended last; call only where there is one."""
        return self._samples[-1]

    @property
    def amount(self) -> float:
        """The work done in them, in the unit of the task's rate."""
        return sum(sample.amount for sample in self._samples)

    @property
    def seconds(self) -> float:
        """The seconds in which they ended, more than 0."""
        return max(self.last.t_end_s - self._begin_s, 1e-9)
