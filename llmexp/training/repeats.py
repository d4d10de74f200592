"""A repeat of a training run, and what its metrics need besides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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

    `flops` are those of model and devices, `peak_flops_per_s` is the dense peak of one device (`fp8_peak_flops_per_s`
    that of products in fp8), and `has_budget` tells that tokens or seconds said when training ended.
    """

    world_size: int
    dp: int
    flops: Flops | None = None
    peak_flops_per_s: float | None = None
    fp8_peak_flops_per_s: float | None = None
    price_per_device_hour_usd: float | None = None
    has_budget: bool = False

    @property
    def counted_share(self) -> float:
        """The share of a sum over all ranks that counts.

        The ranks of one replica (tp, pp, cp) work on the same positions, which count once.
        """
        return self.dp / self.world_size

    @property
    def at_peaks(self) -> RunConstants:
        """The same with FLOPs as if all had the one peak: those in fp8 count for the time that they take at theirs.

        Without a peak of fp8 there are none.
        """
        if self.flops is None or not self.flops.fp8_per_position:
            return self
        if self.peak_flops_per_s is None or self.fp8_peak_flops_per_s is None:
            return replace(self, flops=None)
        return replace(self, flops=self.flops.at_peak(self.fp8_peak_flops_per_s / self.peak_flops_per_s))

    @classmethod
    def of(cls, plan: TrainingPlan) -> RunConstants:
        """Take the constants from a plan; the peak is that of the dtype in which matrix products run."""
        hardware = plan.config.hardware
        return cls(
            world_size=plan.processes,
            dp=plan.dims.dp,
            flops=plan.flops,
            peak_flops_per_s=hardware.peak_flops_per_s.get(plan.config.precision.products),
            fp8_peak_flops_per_s=hardware.peak_flops_per_s.get("fp8"),
            price_per_device_hour_usd=hardware.price_per_device_hour_usd,
            has_budget=plan.config.measure.has_budget,
        )
