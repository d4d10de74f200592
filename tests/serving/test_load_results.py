"""The results of load points, from the requests of repeats, whether or not these ended well."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_requests import answer, floor, repeat, serving_plan

from llmexp.errors import RecordError
from llmexp.record.result import ResultPoint
from llmexp.serving.metrics import METRICS
from llmexp.serving.points import results, results_until_now
from llmexp.serving.record.requests import ENDED_AT_WORK, RequestSample
from llmexp.serving.record.summary import ReportedBytes
from llmexp.serving.task import SERVE
from llmexp.serving.verdicts import saturation_of

PLAN = serving_plan("serve.rate=2,max", "serve.requests=2", "serve.slo.ttft_s=1")


def test_throughput_counts_from_the_first_due_to_the_last_answer_and_tokens_by_their_number() -> None:
    answers = [answer(0, 1.0), answer(1, 2.0, takes_s=3.0), *(answer(i, point=1) for i in range(2))]
    first, second = results(PLAN, [repeat(*answers)])
    assert first.params == {"load": "open", "rate_per_s": 2.0}
    assert second.params == {"load": "open", "rate_per_s": "max"}
    found = {name: metric.mean for name, metric in first.metrics.items() if metric}
    assert found["output_tokens_per_s"] == pytest.approx(8 / 4)
    assert found["total_tokens_per_s"] == pytest.approx((8 + 16) / 4)
    assert found["requests_per_s"] == pytest.approx(2 / 4)
    assert (found["ttft_p50_s"], found["end_to_end_p99_s"]) == (pytest.approx(1.25), pytest.approx(2.99))
    assert found["tpot_mean_s"] == pytest.approx((1 + 1.5) / 2 / 3)
    assert found["goodput_per_s"] == pytest.approx(1 / 4)


@pytest.mark.parametrize("takes_s", [5.0, 0.0])
def test_all_rates_of_a_load_have_one_window_whenever_requests_fail(takes_s: float) -> None:
    answers = [answer(index, index / 10, takes_s=1.0) for index in range(54)]
    failed = [answer(index, index / 10, takes_s=takes_s, problem="HTTP status 500: no") for index in range(54, 60)]
    (point,) = results(serving_plan("serve.rate=10", "serve.slo.ttft_s=1"), [repeat(*answers, *failed)])
    found = {name: metric.mean for name, metric in point.metrics.items() if metric}
    assert found["goodput_per_s"] == found["requests_per_s"] == pytest.approx(54 / 6.3)
    assert found["output_tokens_per_s"] == pytest.approx(4 * 54 / 6.3)


def test_an_objective_of_tpot_is_neither_kept_nor_missed_where_nobody_counts_tokens() -> None:
    plan = serving_plan("serve.rate=20", "serve.requests=200", "serve.slo.tpot_s=9")
    uncounted = [answer(i, i / 20, 0.1, usage_output_tokens=None, token_ids=None) for i in range(200)]
    (point,) = found = results(plan, [repeat(*uncounted)])
    assert "goodput_per_s" not in point.metrics
    assert point.verdicts["load"].answer == "kept_up"
    assert point.verdicts["objective"].answer == "unknown"
    assert point.verdicts["objective"].reasons[0].startswith("the output tokens of 200 requests were not counted")
    assert str(saturation_of(found)) == "unknown (20/s could not be judged)"


def test_latency_counts_the_time_that_a_request_waited_to_be_sent() -> None:
    plan = serving_plan("serve.rate=1", "serve.requests=1")
    (point,) = results(plan, [repeat(answer(0, sent_s=0.5, chunk_us=[500_000, 1_000_000]))])
    found = {name: metric.mean for name, metric in point.metrics.items() if metric}
    assert (found["ttft_p50_s"], found["ttft_from_send_p50_s"], found["send_delay_p50_s"]) == (1.0, 0.5, 0.5)


def test_repeats_have_a_deviation() -> None:
    plan = serving_plan("serve.rate=max", "serve.requests=1")
    (point,) = results(plan, [repeat(answer(0, takes_s=2.0)), repeat(answer(0, takes_s=4.0))])
    found = point.metrics["output_tokens_per_s"]
    assert found
    assert (found.mean, found.n, found.std_between_repeats) == (1.5, 2, pytest.approx(0.5**0.5))


def test_failed_requests_are_counted_and_their_time_is_none_of_the_latencies() -> None:
    plan = serving_plan("serve.rate=max", "serve.requests=2")
    failed = answer(1, takes_s=9.0, problem="HTTP status 503: busy")
    (point,) = results(plan, [repeat(answer(0), failed)])
    found = {name: metric.mean for name, metric in point.metrics.items() if metric}
    assert (found["failed_requests"], found["end_to_end_p99_s"], found["output_tokens_per_s"]) == (1, 2.0, 2.0)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"problem": "HTTP status 500: no"}, "no request got a complete answer: HTTP status 500: no"),
        (
            {"usage_output_tokens": 3},
            "1 of 1 answers are not what was asked for: 4 output tokens were asked for, the server counted 3",
        ),
        (
            {"token_ids": [1] * 5},
            "1 of 1 answers are not what was asked for: 4 output tokens were asked for, it sent 5",
        ),
    ],
)
def test_a_load_whose_answers_are_none_of_the_work_has_no_figures(changed: dict[str, object], problem: str) -> None:
    plan = serving_plan("serve.rate=max", "serve.requests=1")
    (point,) = results(plan, [repeat(answer(0, **changed))])
    assert (point.metrics, point.problem) == ({}, problem)


def ended(folder: Path, *samples: RequestSample, could_tell: bool = True) -> list[ResultPoint]:
    written = "".join(each.model_dump_json() + "\n" for each in samples)
    (folder / "samples.0.jsonl").write_text(written + '{"index": 2, "warm')
    if could_tell:
        (folder / "failure.0.json").touch()
    return results_until_now(PLAN, folder)


def test_a_run_that_ended_has_its_complete_loads_and_accounts_for_every_request(tmp_path: Path) -> None:
    at_work = answer(1, point=1, problem=ENDED_AT_WORK)
    first, second = ended(tmp_path, answer(0), answer(1), answer(0, point=1), at_work, could_tell=False)
    assert first.metrics["output_tokens_per_s"]
    assert second.metrics == {}
    words = "the run ended with 1 of 2 requests answered, 0 failed, 1 in flight and 0 not sent"
    assert second.problem == words


def test_a_load_with_failures_was_complete_where_the_next_one_had_begun(tmp_path: Path) -> None:
    failed = answer(1, problem="HTTP status 500: no")
    first, second = ended(tmp_path, answer(0), failed, answer(0, point=1, warmup=True))
    assert first.metrics["failed_requests"]
    assert "0 of 2 requests answered, 0 failed, 0 in flight and 2 not sent" in second.problem
    first, second = ended(tmp_path, answer(0), failed)
    assert first.metrics == {}
    assert first.problem.endswith("and 0 not sent; the first failure: HTTP status 500: no")


def test_a_client_that_could_not_tell_leaves_open_which_requests_were_at_work(tmp_path: Path) -> None:
    first, second = ended(tmp_path, answer(0), answer(1, warmup=True), could_tell=False)
    assert "and 1 in flight or not sent; the client could no longer say which" in first.problem
    assert "0 in flight and 2 not sent" in second.problem
    first, second = results_until_now(PLAN, tmp_path / "nowhere")
    assert "and 2 in flight or not sent" in first.problem


def test_answers_of_other_work_have_no_figures_in_a_run_that_ended_and_none_in_a_runs_metrics(tmp_path: Path) -> None:
    odd = [answer(0), answer(1, usage_output_tokens=3)]
    first, _ = ended(tmp_path, *odd)
    assert (first.metrics, first.problem.partition(":")[0]) == ({}, "1 of 2 answers are not what was asked for")
    found = METRICS.measure([repeat(*odd, *(answer(i, point=1, takes_s=4.0) for i in range(2)))], PLAN)
    assert found["output_tokens_per_s"]
    assert found["output_tokens_per_s"].mean == 2


def test_a_run_without_any_figure_is_none(tmp_path: Path) -> None:
    odd = [answer(index, point=point, usage_output_tokens=3) for point in range(2) for index in range(2)]
    with pytest.raises(RecordError, match="no load point could be measured: 2 of 2 answers are not what was asked"):
        SERVE.points(PLAN, [repeat(*odd)])


def test_the_metrics_of_a_run_are_the_best_of_its_loads() -> None:
    answers = [answer(0, 1.0), answer(1, 2.0), *(answer(i, point=1, takes_s=1.0) for i in range(2))]
    found = METRICS.measure([repeat(*answers)], PLAN)
    assert found["output_tokens_per_s"]
    assert found["output_tokens_per_s"].mean == 8
    assert found["server_start_s"]
    assert found["server_start_s"].mean == 3.0


def test_what_a_server_holds_is_a_metric_and_what_nobody_tells_is_none() -> None:
    answers = [answer(index, 1.0, point=point) for point in range(2) for index in range(2)]
    held = ReportedBytes(weights_bytes=75, kv_cache_tokens=64, kv_cache_from="its page")
    found = METRICS.measure([repeat(*answers, held=held)], PLAN)
    told = {
        name: metric.mean if (metric := found[name]) else None for name in found if "weights" in name or "kv" in name
    }
    assert told == {"weights_bytes": 75, "kv_cache_bytes": None, "kv_cache_tokens": 64}
    assert held.sources == {"kv_cache_from": "its page"}


def test_the_clients_floor_stands_beside_the_load() -> None:
    plan = serving_plan("serve.rate=max", "serve.requests=1")
    (point,) = results(plan, [repeat(answer(0), floors=[floor()])])
    found = point.metrics["client_floor_ttft_p50_s"]
    assert found
    assert found.mean == 0.001
