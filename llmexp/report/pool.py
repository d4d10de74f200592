"""Several runs that measure the same, as one whose repeats are those of all."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt

from llmexp.analysis.sameness import is_another, where_asked
from llmexp.errors import ConfigError
from llmexp.record.result import Metric
from llmexp.report.baseline import Measured


def pool(runs: Sequence[Measured]) -> Measured:
    """Take the repeats of those that were measured together, of runs in the order in which they ended.

    What else is said is of the last. Raises ConfigError where they did not do the same work and the same training in
    the same environment.
    """
    counted = [run for run in runs if run.is_measured] or runs[-1:]
    last = counted[-1]
    for run in counted:
        for one, other in ((run.work, last.work), (run.environment, last.environment)):
            if key := next((key for key in {**one, **other} if one.get(key) != other.get(key)), None):
                name = _name(last)
                values = f"{one.get(key, 'not known')} and {other.get(key, 'not known')}"
                raise ConfigError(f"--pool: runs of {name} differ in {key}, {values}: name only those that agree")
        if is_another(training := where_asked(run.trained, last.trained)):
            raise ConfigError(f"--pool: two runs of {_name(last)} did not do the same training: {training.reason}")
    names = dict.fromkeys(name for run in counted for name in run.metrics)
    metrics = {name: _of_all([run.metrics[name] for run in counted if name in run.metrics]) for name in names}
    reasons = dict.fromkeys(run.unstable for run in counted if run.unstable)
    return last.model_copy(update={"metrics": metrics, "unstable": "; ".join(reasons)})


def _name(run: Measured) -> str:
    return " ".join(run.settings[each] for each in ("model.name", "method") if each in run.settings)


def _of_all(metrics: Sequence[Metric]) -> Metric:
    """Return the mean and the deviation that the repeats of all would have had in one run."""
    n = sum(metric.n for metric in metrics)
    mean = fsum(metric.n * metric.mean for metric in metrics) / n
    squares = fsum(
        (metric.n - 1) * (metric.std_between_repeats or 0.0) ** 2 + metric.n * (metric.mean - mean) ** 2
        for metric in metrics
    )
    return Metric(mean=mean, std_between_repeats=sqrt(squares / (n - 1)) if n > 1 else None, n=n)
