"""What batch.micro=max found, in words: the batch, the fastest of those tried, and what a larger one would bring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from llmexp.record.digits import rounded
from llmexp.record.result import ResultPoint
from llmexp.training.analysis.batch_gain import WORTH, BatchGain, batch_gain
from llmexp.training.largest_batch import BATCH, FITS, has_ended
from llmexp.training.report.row import TrainingRow

# The allocator's peak is a GPU's; on cpu the process's own memory is all that grows with the batch.
MEMORY = {"peak_allocated_bytes": "peak allocated", "peak_rss_bytes": "process memory"}
# An interval whose end is further from its middle, as a ratio, says nothing that helps.
WIDEST = 2.0
_PAYS = {
    "pays": "a device with more memory would be faster",
    "saturated": "more memory would hardly be faster",
    "unknown": f"whether a further doubling brings {WORTH:.0%} is unclear from these trials",
}


@dataclass(frozen=True)
class SearchedBatch:
    """What a search for the largest batch has shown, in samples a rank.

    `fits` of `tries` of the largest were not out of memory; 0 where nothing has fitted. `too_large` is the smallest
    batch above it that was; None where none was tried. `tokens_per_s` has the means of the trials up to the largest.
    A search that has not ended, because a trial failed otherwise, has only what was tried.
    """

    largest: int
    fits: int
    tries: int
    too_large: int | None
    tokens_per_s: Mapping[int, float]
    gain: BatchGain | None
    ended: bool = True

    @property
    def fastest(self) -> int | None:
        """The batch of the fastest trials; None where none has a speed."""
        return max(self.tokens_per_s, key=lambda micro: self.tokens_per_s[micro], default=None)


def trials_of(row: TrainingRow) -> Sequence[ResultPoint]:
    """Return the account of the search; empty where the run did not search, or has not ended."""
    return [point for point in row.result.points if FITS in point.verdicts] if row.result else []


def fitted(trial: ResultPoint) -> bool:
    """Tell whether the trial ended well."""
    return trial.verdicts[FITS].answer == "yes"


def batch_cell(row: TrainingRow) -> str:
    """Return the batch that the run found, or "" where it was given or is not known."""
    return str(row.batch.micro) if row.plan.config.batch.is_searched and row.rate else ""


def search_note(row: TrainingRow) -> str:
    """Say how the search ended and what it shows of speed; empty where the run did not search."""
    found = search_of(row)
    if not found:
        return ""
    if not found.ended:
        return f"the search for the largest batch has not ended: {_so_far(found)}"
    if not found.fits:
        return "searched for the largest batch: not even 1 sample a rank fits"
    parts = [_bounds(found), *_fastest(found)]
    return "; ".join([*parts, _gained(found.gain)] if found.gain and row.rate else parts)


def search_of(row: TrainingRow) -> SearchedBatch | None:
    """Return what the run's trials say; None where it did not search, or has not ended."""
    trials = trials_of(row)
    if not trials:
        return None
    ended = bool(row.result and row.result.status.is_answer) or has_ended(row.plan.config.batch, trials)
    micro = row.batch.micro if ended else max((trial.params[BATCH] for trial in trials if fitted(trial)), default=0)
    tries = [trial for trial in trials if trial.params[BATCH] == micro]
    failed = [trial.params[BATCH] for trial in trials if not fitted(trial) and trial.params[BATCH] > micro]
    # A larger batch than the one that was found may have fitted by luck.
    speeds = {one: some for one, some in over_batches(trials, "tokens_per_s").items() if one <= micro}
    return SearchedBatch(
        largest=micro,
        fits=sum(map(fitted, tries)),
        tries=len(tries),
        too_large=min(failed, default=None),
        tokens_per_s={one: fmean(some) for one, some in speeds.items()},
        gain=batch_gain(speeds, row.rate) if ended else None,
        ended=ended,
    )


def over_batches(trials: Sequence[ResultPoint], metric: str) -> dict[int, list[float]]:
    """Return a metric's means in the trials that fitted, by samples a rank."""
    found: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        value = trial.metrics.get(metric)
        if fitted(trial) and value and value.mean > 0:
            found[trial.params[BATCH]].append(value.mean)
    return dict(found)


def memory_of(trials: Sequence[ResultPoint]) -> str:
    """Return the name of the metric that gives the trials' memory; empty where none does."""
    return next((name for name in MEMORY if any(trial.metrics.get(name) for trial in trials)), "")


def _so_far(found: SearchedBatch) -> str:
    fitted = f"{found.largest} a rank fitted" if found.fits else "nothing has fitted"
    return fitted if found.too_large is None else f"{fitted}, {found.too_large} did not"


def _bounds(found: SearchedBatch) -> str:
    end = "larger ones were not asked for" if found.too_large is None else f"{found.too_large} does not"
    tries = f"{found.fits} of {found.tries} tries"
    return f"searched for the largest batch: {found.largest} a rank fits ({tries}), {end}"


def _fastest(found: SearchedBatch) -> list[str]:
    speeds, best, largest = found.tokens_per_s, found.fastest, found.largest
    if best is None or len(speeds) < 2:
        return []
    own = f", {largest} at {rounded(speeds[largest])}" if best != largest in speeds else ""
    return [f"fastest of {len(speeds)} batches tried: {best} at {rounded(speeds[best])} tokens/s{own}"]


def _gained(gain: BatchGain) -> str:
    if is_vague(gain):
        return f"what a doubling between {gain.smaller} and {gain.largest} brings cannot be told from so few trials"
    low, high = gain.doubling.ratio_interval()
    return (
        f"from {gain.smaller} to {gain.largest} each doubling brought {gain.doubling.ratio - 1:+.1%} tokens/s "
        f"({low - 1:+.1%} to {high - 1:+.1%}): {_PAYS[gain.answer]}"
    )


def is_vague(gain: BatchGain) -> bool:
    """Tell whether the interval is too wide to be of help."""
    return gain.doubling.ratio_interval()[1] > WIDEST * gain.doubling.ratio
