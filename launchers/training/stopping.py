"""The measured window of a training rank: all its steps, as many as a known tokens/s needs, or a time.

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
    if protocol.duration_s:
        return _run_for(protocol.duration_s, loop, batches, protocol.warmup_steps, device)
    wall_s, pieces = 0.0, list(blocks(protocol))
    for block in pieces:
        distributed.barrier()
        wall_s += loop.run(batches, block, warmup=False)
        if protocol.stop_at_interval_share and _agreed(
            rank, protocol.stop_at_interval_share, max(1, len(pieces) - 1), device
        ):
            break
    return wall_s


def _run_for(
    duration_s: float, loop: StepLoop, batches: Iterator[Sequence[MicroBatch]], first: int, device: torch.device
) -> float:
    """Run steps until their wall seconds come nearest to `duration_s`, in blocks of half of what is left."""
    wall_s, taken, block = 0.0, 0, 1
    while block:
        distributed.barrier()
        wall_s += loop.run(batches, range(first + taken, first + taken + block), warmup=False)
        taken += block
        block = _shared(steps_until(duration_s, wall_s, taken), device)
    return wall_s


def steps_until(duration_s: float, wall_s: float, taken: int) -> int:
    """Return the steps of the next block; 0 where another step would end further from `duration_s` than the last did.

    Blocks take half of the time that is left at the mean of the `taken` steps, so that one slow step matters little.
    """
    left = (duration_s - wall_s) * taken / wall_s
    return max(1, int(left / 2)) if left > 0.5 else 0


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
    return bool(_shared(int(rank.index == 0 and _known(rank.samples_path, share, looks)), device))


def _shared(value: int, device: torch.device) -> int:
    """Return rank 0's value on all ranks."""
    shared = torch.tensor(value, device=device)
    distributed.broadcast(shared, src=0)
    return int(shared)


def _known(samples_path: Path, share: float, looks: int) -> bool:
    measured = [sample for sample in read_samples(samples_path, StepSample) if not sample.warmup]
    rates = tuple(sample.positions / duration_s(sample) for sample in measured)
    return is_known_to([Measurement(harmonic_mean(rates), rates)], share, looks)
