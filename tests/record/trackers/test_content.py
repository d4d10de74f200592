import json
import os

import pytest

from llmexp.errors import RecordError
from llmexp.machine.host_load import begin_counting, load
from llmexp.record.plan import RunPlan
from llmexp.record.trackers.content import LONGEST_VALUE, read
from llmexp.record.writing import write_atomically


def test_params_are_few_and_say_what_identifies_the_run(make_run):
    params = read(make_run("F+Z2")).params
    groups = {"task": "pretrain", "model": "tiny", "engine": "deepspeed", "hardware": "cpu", "precision": "fp32"}
    sizes = {"world_size": "2", "batch.micro": "2", "batch.global": "4", "data.seq_len": "350", "parallelism.dp": "2"}
    assert (groups | sizes | {"method": "F+Z2", "measure": "smoke"}).items() <= params.items()
    assert len(params) < 30
    assert not [name for name in params if name.startswith(("tracking", "sweep", "model.", "hardware."))]
    assert "memory.activation_offload" not in params, "it is as everybody has it"


def test_params_have_what_was_typed_and_what_differs_from_defaults(make_run):
    typed = read(make_run(model__num_layers=1, optimizer__lr=0.5, seed=7)).params
    assert (typed["model.num_layers"], typed["optimizer.lr"], typed["seed"]) == ("1", "0.5", "7")
    folder = make_run(memory={"activation_offload": True})
    plan = RunPlan.read(folder.plan_path)
    folder.write(folder.plan_path, plan.model_copy(update={"overrides": ["method=Naive"]}))
    assert read(folder).params["memory.activation_offload"] == "true"


def test_the_machines_load_has_the_names_of_mlflows_own_system_metrics(make_run):
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor

    monitor = CPUMonitor()
    monitor.collect_metrics()
    begin_counting()
    ours = load()
    assert monitor.metrics.keys() <= ours.keys()
    shares = {name: value[-1] for name, value in monitor.metrics.items() if name.startswith("system_memory")}
    assert {name: ours[name] for name in shares} == pytest.approx(shares, rel=0.5)
    folder = make_run()
    folder.system_path.write_text(json.dumps({"at_s": 4e9, "gpu_0_utilization_percentage": 97} | ours))
    names = {point.name for point in read(folder).points()}
    assert {f"system/{name}" for name in (*monitor.metrics, "gpu_0_utilization_percentage")} <= names


def test_the_verdict_is_a_tag_and_stands_in_the_note_and_its_interval_are_metrics(make_run):
    content = read(make_run())
    assert (content.tags["stability"], content.tags["stability_reasons"]) == ("unstable", "drift: a; noise: b")
    assert "**unstable**: drift: a; noise: b" in content.note
    assert {("tokens_per_s_low", 6900.0), ("tokens_per_s_high", 7100.0)} <= {
        (point.name, point.value) for point in content.points()
    }


def test_the_runs_that_it_was_measured_beside_are_a_tag(make_run):
    folder = make_run()
    assert "concurrent_runs" not in read(folder).tags
    result = folder.result()
    judged = result.stability.model_copy(update={"concurrent_runs": ["tiny_F_1", "tiny_R_2"]})
    folder.write(folder.result_path, result.model_copy(update={"stability": judged}))
    assert read(folder).tags["concurrent_runs"] == "tiny_F_1; tiny_R_2"


def test_a_run_without_a_verdict_has_no_tag_of_it(make_run):
    assert not [name for name in read(make_run(status="oom")).tags if name.startswith("stability")]


def test_long_values_are_cut_and_odd_keys_are_made_valid(make_run):
    params = read(make_run(engine__options={"a,b": "x" * 1000})).params
    assert params["engine.options.a_b"] == "x" * (LONGEST_VALUE - 1) + "…"


def test_the_digest_follows_result_ending_and_figures(make_run):
    folder = make_run()
    digests = [read(folder).digest, read(folder).digest]
    write_atomically(folder.figures / "memory.png", "more")
    digests.append(read(folder).digest)
    folder.write(folder.result_path, folder.result().model_copy(update={"stack": "fedcba987654"}))
    digests.append(read(folder).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_earlier_attempts_and_unfinished_writes_are_not_among_the_files(make_run):
    folder = make_run()
    write_atomically(folder.path / "previous" / "1" / "result.json", "{}")
    (folder.path / ".result.json.77").write_text("{")
    names = {path.relative_to(folder.path).as_posix() for path in read(folder).files()}
    assert "result.json" in names
    assert not [name for name in names if name.startswith((".", "previous"))]


def test_a_killed_run_lasted_until_its_last_sign_of_life(make_run):
    folder = make_run(status=None)
    folder.event("running", host=os.uname().nodename, pid=2**22 + 1, process_started_at_s=0.0)
    at_s = 4_000_000_000
    os.utime(folder.repeat(0) / "samples.1.jsonl", (at_s, at_s))
    content = read(folder)
    assert content.tags["status"] == "killed"
    assert content.window.end_s == at_s


def test_a_killed_run_whose_steps_say_their_time_lasted_until_then_whatever_the_file_server_says(
    make_run, write_samples
):
    folder = make_run(status=None)
    folder.event("running", host=os.uname().nodename, pid=2**22 + 1, process_started_at_s=0.0)
    write_samples(folder.repeat(0), 0, [(1.0, 5.0)] * 10, from_s=4_000_000_000.0)
    content = read(folder)
    assert content.window.end_s == 4_000_000_010
    assert max(point.at_ms for point in content.points()) == 4_000_000_010_000


@pytest.mark.parametrize("text", ["", "[]", '{"id": "1"}'])
def test_what_is_not_a_plan_is_named(make_run, text):
    folder = make_run()
    folder.plan_path.write_text(text)
    with pytest.raises(RecordError, match=r"plan\.json is not a plan"):
        read(folder)
