"""Metrics of training that other packages add by the entry-point group llmexp.metrics, beside llmexp's own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint

from llmexp import plugins
from llmexp.analysis.metric import Function, Metrics, MetricSpec
from llmexp.analysis.quantity import Measurement
from llmexp.errors import ConfigError, RecordError
from llmexp.training.metrics import METRICS
from llmexp.training.repeats import RunConstants, TrainingRepeat


@cache
def outside_metrics() -> tuple[MetricSpec, ...]:
    """Return the metrics of other packages, sorted by name.

    Raises ConfigError where a package is broken, or where a name is taken or is no word of letters, digits and _.
    """
    found = plugins.points(plugins.METRICS, frozenset(map(str.lower, METRICS)))
    return tuple(_outside(point) for point in found.values())


@cache
def all_metrics() -> Metrics:
    """Return all metrics of training: llmexp's own come first; raises ConfigError as `outside_metrics` does."""
    return Metrics(METRICS | {spec.name: spec for spec in outside_metrics()})


def _outside(point: EntryPoint) -> MetricSpec:
    spec: MetricSpec = plugins.load(point, MetricSpec)
    if not point.name.isidentifier():
        raise ConfigError(
            f"package {plugins.distribution(point)}: {point.group} {point.name}: a metric's name is a word of letters, "
            "digits and _, with its unit at the end, as in slow_step_time_s"
        )
    return replace(spec, name=point.name, function=_named(point, spec.function))


def _named(point: EntryPoint, function: Function) -> Function:
    """Let the package's name stand in the error where somebody else's function fails."""
    who = f"metric {point.name} of package {plugins.distribution(point)}"

    def measured(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
        try:
            found = function(repeat, facts)
        except RecordError:
            raise
        except Exception as error:  # somebody else's code can raise anything
            raise RecordError(f"{who} failed ({type(error).__name__}: {error})") from error
        if found is not None and not isinstance(found, Measurement):
            raise RecordError(f"{who} returned a {type(found).__name__}, not a Measurement or None")
        return found

    return measured
