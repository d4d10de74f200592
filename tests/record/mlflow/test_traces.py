"""Requests and profiled steps as traces of a run, with the times at which they happened."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from served_requests import answer, serving_plan

from llmexp.record.folder import RunFolder
from llmexp.record.mlflow import record_runs, sync

BEGUN_S, TOKEN = 1.8e9, "tok-0123456789abcdef"


@pytest.fixture
def served(outputs, result_of):
    """A served run with so many requests, of which each takes longer than the one before, from BEGUN_S on."""

    def make(requests=50, **changed):
        plan = serving_plan("model=tiny", "serve.rate=[4]", f"serve.requests={requests}", f"sweep.outputs={outputs}")
        folder = RunFolder(outputs / "main" / plan.folder_name)
        folder.write(folder.plan_path, plan)
        folder.event("running")
        found = [answer(index, due_s=index, takes_s=1 + index, **changed) for index in range(requests)]
        told = [sample.model_copy(update={"at_s": BEGUN_S + sample.t_end_s}) for sample in found]
        folder.repeat(0).mkdir()
        lines = "".join(sample.model_dump_json() + "\n" for sample in told)
        (folder.repeat(0) / "samples.0.jsonl").write_text(lines)
        at = [datetime.fromtimestamp(BEGUN_S + s, UTC).isoformat() for s in (0, 200)]
        folder.write(folder.result_path, result_of(plan, "success", started_at=at[0], ended_at=at[1]))
        return folder

    return make


@pytest.fixture
def traces(client, recorded):
    def find():
        [run] = recorded()
        return client.search_traces(locations=[run.info.experiment_id], run_id=run.info.run_id)

    return find


def test_requests_from_the_fastest_to_the_slowest_are_traces_of_the_run(served, tracking, traces):
    record_runs([served()], tracking)
    found = traces()
    took_s = sorted(round(trace.info.execution_duration / 1e3) for trace in found)
    assert (len(found), took_s[0], took_s[-1]) == (20, 1, 50)
    assert sorted(set(took_s)) == took_s


def test_a_trace_has_the_requests_own_times_and_tokens(served, tracking, traces):
    record_runs([served()], tracking)
    trace = next(trace for trace in traces() if trace.info.execution_duration == 50_000)
    root, *parts = sorted(trace.data.spans, key=lambda span: (span.parent_id is not None, span.end_time_ns))
    assert [span.name for span in (root, *parts)] == ["request 49 under 4/s", "queue", "prefill", "decode"]
    assert trace.info.request_preview == '"request 49 under 4/s"'
    at_s = {span.name: (span.start_time_ns / 1e9 - BEGUN_S, span.end_time_ns / 1e9 - BEGUN_S) for span in parts}
    assert at_s["queue"] == (49, 49)
    assert at_s["prefill"] == pytest.approx((49, 74))
    assert at_s["decode"] == pytest.approx((74, 99), abs=1e-3)
    assert {span.parent_id for span in parts} == {root.span_id}
    assert (root.attributes["input_tokens"], root.attributes["output_tokens"]) == (8, 4)
    assert root.attributes["slower_than"] == "49 of 49"
    assert trace.info.token_usage == {"input_tokens": 8, "output_tokens": 4, "total_tokens": 12}


def test_a_failed_request_is_a_trace_that_says_why(served, tracking, traces):
    record_runs([served(requests=1, problem="the connection was cut")], tracking)
    [trace] = traces()
    assert (trace.info.state, trace.data.spans[0].status.description) == ("ERROR", "the connection was cut")


def test_copying_twice_makes_no_trace_twice(served, tracking, traces):
    folder = served()
    record_runs([folder], tracking)
    assert sync([folder], tracking).unchanged == 1
    assert len(traces()) == 20


def test_a_run_that_was_measured_again_takes_its_traces_with_it(served, tracking, traces, client, recorded):
    folder = served()
    record_runs([folder], tracking)
    folder.write(folder.result_path, folder.result().model_copy(update={"stack": "fedcba987654"}))
    assert sync([folder], tracking).written == 1
    assert len(traces()) == len(client.search_traces(locations=[recorded()[0].info.experiment_id])) == 20


def test_the_profiled_step_is_a_trace_that_ends_with_the_run(make_run, tracking, traces, profiled_steps):
    folder = make_run()
    folder.write(folder.breakdown_path, profiled_steps)
    record_runs([folder], tracking)
    [trace] = traces()
    assert {span.name for span in trace.data.spans} == {"profiled step", "forward", "Layer", "Attention", "idle"}
    ended_ms = 1e3 * datetime.fromisoformat(folder.result().ended_at).timestamp()
    assert trace.info.execution_duration == pytest.approx(10, abs=1)
    assert trace.info.request_time == pytest.approx(ended_ms - 10, abs=1)


def test_a_run_without_either_has_no_traces(make_run, tracking, traces):
    record_runs([make_run()], tracking)
    assert list(traces()) == []


def test_no_secret_reaches_a_trace(served, tracking, traces, outputs, monkeypatch):
    monkeypatch.setenv("FOO_TOKEN", TOKEN)
    folder = served(requests=1, problem=f"refused {TOKEN}", text=f"it is {TOKEN}", token_ids=None, chunk_tokens=None)
    record_runs([folder], tracking)
    [trace] = traces()
    assert trace.data.spans[0].outputs.startswith("it is ")
    assert TOKEN.encode() not in (outputs / "mlflow.db").read_bytes()


def test_a_run_that_another_driver_removes_meanwhile_leaves_no_traces(served, tracking, client, monkeypatch):
    from mlflow import MlflowClient

    link = MlflowClient.link_traces_to_run

    def and_remove(self, trace_ids, run_id):
        link(self, trace_ids, run_id)
        self.delete_run(run_id)

    monkeypatch.setattr(MlflowClient, "link_traces_to_run", and_remove)
    record_runs([served()], tracking)
    experiment = client.get_experiment_by_name("llmexp").experiment_id
    assert list(client.search_traces(locations=[experiment])) == []
