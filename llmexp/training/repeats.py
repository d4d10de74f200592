"""A repeat of a training run, and what its metrics need besides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmexp.analysis.window import Repeat, read_repeat
from llmexp.record.flops import Flops
from llmexp.record.samples import StepSample, TrainingSummary
from llmexp.training.plan.training_plan import TrainingPlan

TrainingRepeat = Repeat[StepSample, TrainingSummary]
Step = Sequence[StepSample]


def read_training(folder: Path, ranks: int) -> TrainingRepeat:
    """Read a repeat that ended well; raises RecordError."""
    return read_repeat(folder, ranks, StepSample, TrainingSummary)


@dataclass(frozen=True)
class RunConstants:
    """Constants that metrics need and that the plan knows, not the samples.

    `flops` are those of model and devices, `peak_flops_per_s` is the dense peak of one device, and `token_budget` the
    number of tokens to train on.
    """

    world_size: int
    dp: int
    flops: Flops | None = None
    peak_flops_per_s: float | None = None
    price_per_device_hour_usd: float | None = None
    token_budget: int | None = None

    @property
    def counted_share(self) -> float:
        """The share of a sum over all ranks that counts.

        The ranks of one replica (tp, pp, cp) work on the same positions, which count once.
        """
        return self.dp / self.world_size

    @classmethod
    def of(cls, plan: TrainingPlan) -> RunConstants:
        """Take the constants from a plan; the peak is that of the dtype in which matrix products run."""
        hardware = plan.config.hardware
        return cls(
            world_size=plan.processes,
            dp=plan.dims.dp,
            flops=plan.flops,
            peak_flops_per_s=hardware.peak_flops_per_s.get(plan.config.precision.products),
            price_per_device_hour_usd=hardware.price_per_device_hour_usd,
            token_budget=plan.config.measure.tokens,
        )
