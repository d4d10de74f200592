"""The task serve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmexp.analysis.contention import Machine
from llmexp.analysis.stability import AnyRepeat
from llmexp.errors import RecordError
from llmexp.record.digits import rounded
from llmexp.record.memory import Fit
from llmexp.record.result import Metric, ResultPoint, RunResult, Stability
from llmexp.record.samples import read_samples
from llmexp.record.spans import TimeSpan
from llmexp.report.row import Row
from llmexp.serving.advice import changes_of, options
from llmexp.serving.advice.fitting import fitting
from llmexp.serving.advice.words import advice_words, bound_words
from llmexp.serving.config import ServingRunConfig
from llmexp.serving.doubts import judge_serving
from llmexp.serving.metrics import METRICS
from llmexp.serving.pilot import pilot, samples_s
from llmexp.serving.plan.probes import read_probes
from llmexp.serving.plan.quality import expected_changes
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.planning import plan_serving, warning_of
from llmexp.serving.points import ServingRepeat, read_serving_repeat, results, results_until_now, served
from llmexp.serving.predict import unpredicted
from llmexp.serving.predict.fit import served_fit
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.summary import ServingSummary
from llmexp.serving.report.distributions import draw_distributions
from llmexp.serving.report.over_time import draw_times
from llmexp.serving.report.section import ServingSection
from llmexp.serving.request_spans import request_spans
from llmexp.serving.series import LATENCY_COLUMNS, latency_columns, server_series
from llmexp.tasks.base import PlanWith, Task, source_words


class Serve(Task[ServingRunConfig, ServingPlan]):
    """A server that is started for the run, under one load after the other."""

    name = "serve"
    config_type = ServingRunConfig
    headlines = ("requests_per_s", "goodput_per_s", "server_peak_resident_bytes", "gpu_peak_memory_bytes")
    plan_type = ServingPlan
    pilot_source = "requests"
    brief = ("loads", "requests", "cards", "offload")
    sample_type = RequestSample
    summary_type = ServingSummary
    metrics = METRICS
    section_type = ServingSection
    level = "requests"
    level_columns = LATENCY_COLUMNS

    def plan(self, config: ServingRunConfig) -> ServingPlan:
        """Decide the server's command and the load points."""
        return plan_serving(config)

    def describe(self, plan: ServingPlan) -> dict[str, str]:
        """Return the load points, and the lengths of requests."""
        serve = plan.config.serve
        work = plan.comparison_key
        return {
            "source": source_words(plan.config),
            **{name: work[name] for name in ("loads", "prefix", "trace", "adapters", "turns") if work[name]},
            "requests": f"{serve.requests} of each load, in: {work['prompt']}, out: {work['output']}",
            "prediction": "" if plan.predicted or plan.skip else f"none: {unpredicted(plan)}",
            **advice_words(plan),
            "quality": _quality(plan),
            "profile": _profile(plan) if serve.profile else "",
            "server": plan.server.address or " ".join(plan.server.command.argv),
        }

    def warning(self, plan: ServingPlan) -> str:
        """Warn of a search whose probes have too few requests to be judged."""
        return warning_of(plan)

    def options(self, plan_with: PlanWith[ServingPlan], fixed: Mapping[str, str]) -> Iterator[ServingPlan]:
        """Yield plans of engines, degrees, copies, formats and limits that keep serve.slo as predicted."""
        return options(plan_with, fixed)

    def lifted_by(self, plan: ServingPlan) -> str:
        """Say which limits would bring most, with what lifts them."""
        return bound_words(plan)

    def changes_mathematics(self, plan: ServingPlan) -> Sequence[str]:
        """Return which numbers have fewer bits than 16, where the formats are known."""
        return changes_of(plan) if plan.predicted else ()

    def fitting(self, plan: ServingPlan) -> Sequence[str]:
        """Return the least changes of degree, formats and memory that make a server fit."""
        return fitting(plan)

    def fit(self, plan: ServingPlan) -> Fit | None:
        """Return how one device holds its part of the weights with a request's keys and values."""
        return served_fit(plan)

    def pilot(self, plan: ServingPlan) -> ServingPlan | None:
        """Return a run of the same server under few requests of each load; None where it would not tell."""
        return pilot(plan)

    def samples_s(self, plan: ServingPlan, seen: RunResult) -> float:
        """Return the seconds that a repeat's requests take at the rates of a pilot's loads."""
        return samples_s(plan, seen)

    def read(self, folder: Path, plan: ServingPlan) -> ServingRepeat:
        """Read a repeat with what its server told."""
        return read_serving_repeat(folder, plan)

    def unused_keys(self, plan: ServingPlan) -> dict[str, str]:
        """Return what only a server that is started would read."""
        idle = plan.server.address is not None and plan.config.serve.weights != "auto"
        return {"serve.weights": "the server of serve.address has the weights that it has"} if idle else {}

    def judge(self, plan: ServingPlan, repeats: Sequence[AnyRepeat], machines: Sequence[Machine]) -> Stability | None:
        """Judge the highest rate of output tokens."""
        return judge_serving(plan, served(repeats), self.rates(plan, repeats), machines)

    def points(self, plan: ServingPlan, repeats: Sequence[AnyRepeat]) -> list[ResultPoint]:
        """Return the results of the load points; raises RecordError where none has any."""
        found = results(plan, served(repeats))
        if not any(point.metrics for point in found):
            raise RecordError(f"no load point could be measured: {found[0].problem}")
        return found

    def points_until_now(self, plan: ServingPlan, folder: Path) -> list[ResultPoint]:
        """Return the results of the load points that were complete."""
        return results_until_now(plan, folder)

    def level_rows(self, sample: RequestSample) -> Iterable[dict[str, Any]]:
        """Yield the request with its latencies, from when it was due."""
        return [sample.model_dump() | latency_columns(sample)]

    def series(self, repeat: Path) -> Iterable[tuple[float, str, float]]:
        """Return what the server and its GPUs told of themselves."""
        return server_series(repeat)

    def spans(self, repeat: Path, plan: ServingPlan) -> Iterable[TimeSpan]:
        """Return some requests, from the fastest to the slowest."""
        loads = [str(point) for point in (*plan.points, *read_probes(repeat))]
        return request_spans(read_samples(repeat / "samples.0.jsonl", RequestSample), loads)

    def draw(self, row: Row, figures: Path) -> None:
        """Draw the distributions of the run's latencies."""
        section = ServingSection((row,))
        draw_distributions(section.rows, section.title, section.label, figures / "latencies.png")
        draw_times(row, section.title, figures)

    def remark(self, repeats: Sequence[AnyRepeat]) -> str:
        """Say how many requests failed, and how many answers are not what was asked for."""
        samples = [sample for repeat in repeats for (sample,) in repeat.measured]
        problems = [sample.problem for sample in samples if sample.problem]
        odd = [sample.differences for sample in samples if sample.differences]
        said = [f"{len(problems)} of {len(samples)} requests failed: {problems[0]}"] if problems else []
        said += [f"{len(odd)} of {len(samples)} answers are not what was asked for: {odd[0][0]}"] if odd else []
        return "; ".join(said)

    def outcome(self, plan: ServingPlan, metrics: dict[str, Metric | None]) -> str:
        """Return the most output tokens a second."""
        rate = metrics.get(plan.rate)
        return f"{rounded(rate.mean)} output tokens/s" if rate else ""


def _profile(plan: ServingPlan) -> str:
    """Say which load is profiled; the probes of a search are known when they have been measured only."""
    if not plan.points:
        return "none: only loads of a search are measured, and none of them is repeated"
    return f"{plan.points[-1]} once more, in two windows of {plan.config.serve.profile_s:g} s"


def _quality(plan: ServingPlan) -> str:
    """Say what is asked beside the loads, and what changes of the answers are expected; empty where nothing is."""
    if not plan.config.serve.quality or plan.skip:
        return ""
    asked = f"{plan.config.serve.quality} after the loads, beside one process's"
    expected = expected_changes(plan.config)
    return f"{asked}; changes are expected by {' and '.join(expected)}" if expected else asked


SERVE = Serve()
