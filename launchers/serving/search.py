"""The search for the highest rate that a server keeps up with, or at which requests keep their objective.

Each probe is judged as the report judges it later, from the same requests, so that the records tell the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from llmexp.serving.analysis.load_judgment import in_order, judgment, why_never_known, why_no_figures
from llmexp.serving.analysis.rate_search import Found, RateSearch
from llmexp.serving.analysis.request_latency import Objective
from llmexp.serving.analysis.saturation_point import RateAnswer, find_saturation, holds
from llmexp.serving.plan.load_points import probe_of
from llmexp.serving.plan.probes import probes_path
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.record.requests import RequestSample

Measure = Callable[[LoadPoint], Sequence[RequestSample]]
_WORDS = {True: "held", False: "did not hold", None: "could not be judged"}


def search(plan: ServingPlan, repeat: Path, measure: Measure) -> list[LoadPoint]:
    """Measure one rate after the other until the search ends, and return these load points; none where none is asked.

    `measure` gives the measured requests of a load point. A probe stands in the repeat's file before it is measured.
    """
    wanted = plan.config.serve.search
    if wanted is None:
        return []
    steps = RateSearch(wanted.start_per_s, wanted.tolerance, wanted.most_probes)
    probes: list[LoadPoint] = []
    answers: list[RateAnswer] = []
    with probes_path(repeat).open("w") as file:
        while not isinstance(step := steps.step(answers), Found):
            probes.append(probe_of(plan.config.serve, len(plan.points) + len(probes), len(probes) + 1, step))
            file.write(probes[-1].model_dump_json() + "\n")
            file.flush()
            samples = in_order(measure(probes[-1]))
            if problem := why_no_figures([samples]):
                print(f"search: it ends after {probes[-1]}: {problem}", flush=True)
                return probes
            judged = judgment([samples], Objective.of(plan.config.serve.slo))
            answers.append((step, holds(verdict.answer for verdict in judged.values())))
            print(f"search: {probes[-1]} {_WORDS[answers[-1][1]]}", flush=True)
            if reason := why_never_known(judged):
                print(f"search: {Found(find_saturation(answers), reason)}", flush=True)
                return probes
    print(f"search: {step}", flush=True)
    return probes
