"""What batch.micro=max found, in words: the batch, the fastest of those tried, and what a larger one would bring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from llmexp.analysis.batch_gain import WORTH, BatchGain, batch_gain
from llmexp.record.digits import rounded
from llmexp.record.result import ResultPoint
from llmexp.tasks.training.largest_batch import BATCH, FITS
from llmexp.tasks.training.report.row import TrainingRow

# The allocator's peak is a GPU's; on cpu the process's own memory is all that grows with the batch.
MEMORY = {"peak_allocated_bytes": "peak allocated", "peak_rss_bytes": "process memory"}
# An interval whose end is further from its middle, as a ratio, says nothing that helps.
WIDEST = 2.0
_PAYS = {
    "pays": "a device with more memory would be faster",
    "saturated": "more memory would hardly be faster",
    "unknown": f"whether a further doubling brings {WORTH:.0%} cannot be told from these trials",
}


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
    trials = trials_of(row)
    if not trials:
        return ""
    parts = [_bounds(row, trials), *_fastest(row, trials)]
    gain = batch_gain(_speeds(row, trials), row.rate)
    return "; ".join([*parts, _gained(gain)] if gain and row.rate else parts)


def over_batches(trials: Sequence[ResultPoint], metric: str) -> dict[int, list[float]]:
    """Return a metric's means in the trials that fitted, by samples a rank."""
    found: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        value = trial.metrics.get(metric)
        if fitted(trial) and value and value.mean > 0:
            found[trial.params[BATCH]].append(value.mean)
    return dict(found)


def _speeds(row: TrainingRow, trials: Sequence[ResultPoint]) -> dict[int, list[float]]:
    """Return the tokens/s of the trials up to the batch that was found; a larger one may have fitted by luck."""
    return {micro: some for micro, some in over_batches(trials, "tokens_per_s").items() if micro <= row.batch.micro}


def memory_of(trials: Sequence[ResultPoint]) -> str:
    """Return the name of the metric that gives the trials' memory; empty where none does."""
    return next((name for name in MEMORY if any(trial.metrics.get(name) for trial in trials)), "")


def _bounds(row: TrainingRow, trials: Sequence[ResultPoint]) -> str:
    found = [trial for trial in trials if trial.params[BATCH] == row.batch.micro]
    failed = [trial.params[BATCH] for trial in trials if not fitted(trial) and trial.params[BATCH] > row.batch.micro]
    if not any(map(fitted, found)):
        return "searched for the largest batch: not even 1 sample a rank fits"
    tries = f"{sum(map(fitted, found))} of {len(found)} tries"
    end = f"{min(failed)} does not" if failed else "larger ones were not asked for"
    return f"searched for the largest batch: {row.batch.micro} a rank fits ({tries}), {end}"


def _fastest(row: TrainingRow, trials: Sequence[ResultPoint]) -> list[str]:
    speeds = {micro: fmean(some) for micro, some in _speeds(row, trials).items()}
    if len(speeds) < 2:
        return []
    best = max(speeds, key=lambda micro: speeds[micro])
    own = f", {row.batch.micro} at {rounded(speeds[row.batch.micro])}" if best != row.batch.micro in speeds else ""
    return [f"fastest of {len(speeds)} batches tried: {best} at {rounded(speeds[best])} tokens/s{own}"]


def _gained(gain: BatchGain) -> str:
    low, high = gain.doubling.ratio_interval()
    if high > WIDEST * gain.doubling.ratio:
        return f"what a doubling between {gain.smaller} and {gain.largest} brings cannot be told from so few trials"
    return (
        f"from {gain.smaller} to {gain.largest} each doubling brought {gain.doubling.ratio - 1:+.1%} tokens/s "
        f"({low - 1:+.1%} to {high - 1:+.1%}): {_PAYS[gain.answer]}"
    )
