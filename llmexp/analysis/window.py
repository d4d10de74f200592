"""A repeat as the ranks recorded it: their summaries, and the samples of every step side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from llmexp.errors import RecordError
from llmexp.record.reading import read_text
from llmexp.record.samples import RankSummary, Sample, read_samples

S = TypeVar("S", bound=Sample)
R = TypeVar("R", bound=RankSummary)


@dataclass(frozen=True)
class Repeat(Generic[S, R]):
    """The ranks' summaries in order of rank, and the samples of all ranks for each step, warm-up and measured apart."""

    ranks: tuple[R, ...]
    warmup: tuple[tuple[S, ...], ...]
    measured: tuple[tuple[S, ...], ...]


def read_repeat(folder: Path, world_size: int, samples: type[S], summaries: type[R]) -> Repeat[S, R]:
    """Read a repeat that ended well.

    Raises RecordError where a rank is missing or the ranks did not take the same steps.
    """
    ranks = tuple(_summary(folder / f"rank.{rank}.json", summaries) for rank in range(world_size))
    by_rank = [_samples(folder / f"samples.{rank}.jsonl", samples) for rank in range(world_size)]
    taken = [[(sample.index, sample.warmup) for sample in of_rank] for of_rank in by_rank]
    odd = next((rank for rank in range(world_size) if taken[rank] != taken[0]), None)
    if odd is not None:
        raise RecordError(
            f"{folder}: rank {odd} wrote {len(taken[odd])} steps, rank 0 {len(taken[0])}, not the same ones"
        )
    steps = list(zip(*by_rank, strict=True))
    measured = tuple(step for step in steps if not step[0].warmup)
    if not measured:
        raise RecordError(f"{folder}: no measured step among {len(steps)} steps")
    return Repeat(ranks, tuple(step for step in steps if step[0].warmup), measured)


def duration_s(sample: Sample) -> float:
    """Return the wall time of one step on one rank."""
    return sample.t_end_s - sample.t_start_s


def timed_shares(repeat: Repeat[Any, Any]) -> list[float]:
    """Return, for each rank, the time inside measured steps over the wall time of the window.

    The former is by the device's clock, the latter by the host's.
    """
    inside_s = (sum(duration_s(step[rank]) for step in repeat.measured) for rank in range(len(repeat.ranks)))
    return [seconds / rank.window_wall_s for seconds, rank in zip(inside_s, repeat.ranks, strict=True)]


def slowest(step: Sequence[S]) -> S:
    """Return the sample of the slowest rank in this step, for which the others waited."""
    return max(step, key=duration_s)


def _summary(path: Path, kind: type[R]) -> R:
    try:
        summary = kind.model_validate_json(read_text(path))
    except FileNotFoundError:
        raise RecordError(f"{path} is missing: this rank did not finish") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise RecordError(
            f"{path} is not a rank's summary: {'.'.join(map(str, first['loc']))}: {first['msg']}".replace(": : ", ": ")
        ) from None
    except ValueError as error:
        raise RecordError(f"{path} is not a rank's summary: {error}") from None
    if summary.window_wall_s <= 0:
        raise RecordError(f"{path}: a measured window of {summary.window_wall_s} s is impossible")
    return summary


def _samples(path: Path, kind: type[S]) -> list[S]:
    try:
        samples = read_samples(path, kind)
    except FileNotFoundError:
        raise RecordError(f"{path} is missing: this rank took no step") from None
    except ValueError as error:
        raise RecordError(f"{path} holds no samples: {error}") from None
    impossible = next((s for s in samples if duration_s(s) <= 0), None)
    if impossible:
        raise RecordError(f"{path}: step {impossible.index} took {duration_s(impossible)} s, which is impossible")
    return samples
