"""A schedule of sequence lengths (GrowLength, arXiv 2310.00576) says which length each step has."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from llmexp.errors import ConfigError
from llmexp.training.config import TrainingConfig

KEY = "data.seq_len_schedule"


@dataclass(frozen=True)
class LengthSchedule:
    """Ascending lengths, each for an equal share of all steps, warm-up included; later steps have the last length."""

    lengths: tuple[int, ...]
    warmup_steps: int
    steps: int

    @classmethod
    def of(cls, config: TrainingConfig) -> LengthSchedule:
        """Return the schedule of a configuration, with one length where none is set.

        Raise ConfigError where the steps are too few or not known beforehand.
        """
        given, protocol = config.data.seq_len_schedule, config.measure
        made = cls(given or (config.data.seq_len,), protocol.warmup_steps, protocol.steps)
        for key in ("tokens", "duration_s", "stop_at_interval_share") if given else ():
            if getattr(protocol, key):
                raise ConfigError(
                    f"{KEY} divides a fixed number of steps, and measure.{key} leaves it open: leave one of them out"
                )
        if made.total < len(made.lengths):
            raise ConfigError(
                f"{KEY} has {len(made.lengths)} lengths, and measure.warmup_steps + measure.steps are only "
                f"{made.total} steps"
            )
        return made

    @property
    def total(self) -> int:
        """The number of all steps of a repeat."""
        return self.warmup_steps + self.steps

    def at(self, step: int) -> int:
        """Return the length of a step; steps are counted from the first of the warm-up."""
        return self.lengths[min(step * len(self.lengths) // self.total, len(self.lengths) - 1)]

    @property
    def of_mean_token(self) -> float:
        """The mean length over the positions of the measured window.

        A quantity that is linear in the length, such as a token's FLOPs, has its mean at this length.
        """
        kinds = len(self.lengths)
        # The first step of each length, and the end: at(step) rounds down, so they are rounded up.
        begins = [max(self.warmup_steps, -(-index * self.total // kinds)) for index in range(kinds + 1)]
        counted = [(length, end - begin) for length, (begin, end) in zip(self.lengths, pairwise(begins), strict=True)]
        return sum(length**2 * steps for length, steps in counted) / sum(length * steps for length, steps in counted)
