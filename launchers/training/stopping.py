"""The measured window of a training rank: all its steps, or as many as a known tokens/s needs.

The ranks agree on the last step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from statistics import harmonic_mean

import torch
from torch import distributed

from llmexp.analysis.quantity import Measurement
from llmexp.analysis.stability import is_known_to
from llmexp.analysis.window import duration_s
from llmexp.launchers.rank.frame import Rank
from llmexp.measure.batch import MicroBatch
from llmexp.measure.loop import StepLoop
from llmexp.record.samples import StepSample, read_samples
from llmexp.training.config import TrainingMeasureConfig

# Looks at the interval are this factor apart: so few that waiting for the device costs nothing, and at most a fifth of
# the steps are too many.
BETWEEN_LOOKS = 1.25


def run_window(
    loop: StepLoop,
    batches: Iterator[Sequence[MicroBatch]],
    protocol: TrainingMeasureConfig,
    rank: Rank,
    device: torch.device,
) -> float:
    """Run the measured steps and return their wall seconds, without those of the looks between blocks."""
    wall_s, pieces = 0.0, list(blocks(protocol))
    for block in pieces:
        distributed.barrier()
        wall_s += loop.run(batches, block, warmup=False)
        if protocol.stop_at_interval_share and _agreed(
            rank, protocol.stop_at_interval_share, max(1, len(pieces) - 1), device
        ):
            break
    return wall_s


def blocks(protocol: TrainingMeasureConfig) -> Iterator[range]:
    """Yield the window's steps by number, cut where a look at the interval may end it.

    It is one piece where all steps are wanted.
    """
    taken, steps, first = 0, protocol.steps, protocol.warmup_steps
    while taken < steps:
        look = max(protocol.min_steps, ceil(taken * BETWEEN_LOOKS)) if protocol.stop_at_interval_share else steps
        # If the rest is smaller than the block before it, it gets no look of its own.
        end = steps if steps - look < look - taken else look
        yield range(first + taken, first + end)
        taken = end


def _agreed(rank: Rank, share: float, looks: int, device: torch.device) -> bool:
    """Let rank 0 decide by its own steps, and all others follow.

    Rank 0 stands for all, because ranks wait for each other in every step.
    """
    verdict = torch.tensor(int(rank.index == 0 and _known(rank.samples_path, share, looks)), device=device)
    distributed.broadcast(verdict, src=0)
    return bool(verdict)


def _known(samples_path: Path, share: float, looks: int) -> bool:
    measured = [sample for sample in read_samples(samples_path, StepSample) if not sample.warmup]
    rates = tuple(sample.positions / duration_s(sample) for sample in measured)
    return is_known_to([Measurement(harmonic_mean(rates), rates)], share, looks)
