"""The search of the load client, on a made-up server that answers one request after the other, ten a second."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_requests import answer, repeat, serving_plan

from llmexp.launchers.serving.search import search
from llmexp.serving.plan.load_points import due_s
from llmexp.serving.plan.probes import probes_path, read_probes
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.points import results
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.verdicts import search_end

SERVICE_S = 0.1
WORDS = ("serve.rate=max", "serve.requests=300", "serve.arrivals=constant")


def queue(plan: ServingPlan, point: LoadPoint) -> list[RequestSample]:
    """The requests of a load point, in the order of their ends and not of their numbers."""
    free_s, found = 0.0, []
    for index, due in enumerate(due_s(point, plan.config.serve, 0, point.requests)):
        free_s = max(free_s, due) + SERVICE_S
        found.append(answer(index, due, free_s - due, point=point.number))
    return found[::-1]


def test_it_finds_between_which_rates_the_server_stops_to_keep_up(tmp_path: Path, capsys) -> None:
    plan = serving_plan(*WORDS, "serve.search.start_per_s=3", "serve.search.tolerance=0.2")
    samples: list[RequestSample] = []

    def measure(point: LoadPoint) -> list[RequestSample]:
        found = queue(plan, point)
        samples.extend(found)
        return found

    probes = search(plan, tmp_path, measure)
    assert [probe.rate_per_s for probe in probes[:3]] == [3, 6, 12]
    assert [(probe.number, probe.probe) for probe in probes[:2]] == [(1, 1), (2, 2)]
    assert read_probes(tmp_path) == probes
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("it ended because its ends are within 20% of each other")

    # The report comes to the same end from the records.
    burst = [answer(0, point=0)]
    found = results(plan, [repeat(*burst, *samples, probes=probes)])
    assert plan.config.serve.search
    assert f"search: {search_end(found[1:], plan.config.serve.search)}" == last
    held = [point.params["rate_per_s"] for point in found[1:] if point.verdicts["load"].answer == "kept_up"]
    failed = [point.params["rate_per_s"] for point in found[1:] if point.verdicts["load"].answer == "overloaded"]
    assert 8 <= max(held) <= 10.5 < 1.3 * max(held)
    assert max(held) < min(failed) <= 12


def test_an_objective_makes_the_rate_lower(tmp_path: Path) -> None:
    words = (*WORDS, "serve.arrivals=poisson", "serve.search.start_per_s=2")
    ends = []
    for number, slo in enumerate(([], ["serve.slo.ttft_s=0.08"])):
        plan = serving_plan(*words, *slo)
        folder = tmp_path / str(number)
        folder.mkdir()
        probes = search(plan, folder, lambda point, plan=plan: queue(plan, point))  # type: ignore[misc]
        ends.append(max(probe.rate_per_s or 0 for probe in probes))
    assert ends[1] < ends[0]


def test_a_probe_is_in_the_file_before_it_is_measured(tmp_path: Path) -> None:
    plan = serving_plan(*WORDS, "serve.search.start_per_s=3")

    def measure(point: LoadPoint) -> list[RequestSample]:
        if point.probe == 2:
            raise KeyboardInterrupt
        return queue(plan, point)

    with pytest.raises(KeyboardInterrupt):
        search(plan, tmp_path, measure)
    assert [probe.rate_per_s for probe in read_probes(tmp_path)] == [3, 6]
    with probes_path(tmp_path).open("a") as file:
        file.write('{"number": 3, "requ')
    assert len(read_probes(tmp_path)) == 2


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"problem": "HTTP status 503: busy"}, "no request got a complete answer: HTTP status 503: busy"),
        ({"usage_output_tokens": 3}, "300 of 300 answers are not what was asked for"),
    ],
)
def test_a_search_whose_answers_are_none_of_the_work_ends_at_once(tmp_path: Path, capsys, changed, why) -> None:
    plan = serving_plan(*WORDS, "serve.search=true")
    probes = search(plan, tmp_path, lambda point: [answer(i, float(i), **changed) for i in range(point.requests)])
    assert len(probes) == 1
    assert f"search: it ends after 1/s, probe 1: {why}" in capsys.readouterr().out


def test_a_search_within_an_objective_that_no_request_can_tell_ends_at_once(tmp_path: Path, capsys) -> None:
    plan = serving_plan(*WORDS, "serve.search.start_per_s=3", "serve.slo.tpot_s=9")
    samples: list[RequestSample] = []

    def measure(point: LoadPoint) -> list[RequestSample]:
        samples.extend(
            each.model_copy(update={"usage_output_tokens": None, "token_ids": None}) for each in queue(plan, point)
        )
        return samples

    probes = search(plan, tmp_path, measure)
    last = capsys.readouterr().out.splitlines()[-1]
    assert len(probes) == 1
    assert last.startswith("search: unknown (3/s could not be judged); it ended because the output tokens")
    found = results(plan, [repeat(answer(0), *samples, probes=probes)])
    assert plan.config.serve.search
    assert f"search: {search_end(found[1:], plan.config.serve.search)}" == last


def test_without_a_search_nothing_is_measured_and_no_file_is_written(tmp_path: Path) -> None:
    assert search(serving_plan(*WORDS), tmp_path, lambda point: []) == []
    assert list(tmp_path.iterdir()) == []
    assert read_probes(tmp_path) == []
