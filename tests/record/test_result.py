import json
import math

import pytest
from pydantic import ValidationError

from llmexp.record.result import Metric, RunStatus, Stability, to_json
from llmexp.record.samples import StepSample, read_samples

SAMPLE = StepSample(index=0, warmup=False, t_start_s=0.0, t_end_s=0.5, positions=700, real_tokens=650, loss=6.25)


def test_result_json_has_the_contract_s_names(make_run):
    result = json.loads(make_run("F+R+Z3", repeats=3).result_path.read_text())
    top = {
        "schema",
        "id",
        "stack",
        "status",
        "reason",
        "evidence",
        "task",
        "engine",
        "model",
        "method",
        "hardware",
        "processes",
        "devices",
        "batch",
    }
    assert top | {"metrics", "repeats", "points", "what_ran", "environment", "command"} <= result.keys()
    assert (result["schema"], result["method"], result["evidence"], result["repeats"]) == (2, "F+R+Z3", "measured", 3)
    assert result["batch"] == {"micro": 2, "accumulation": 1, "global": 4}
    assert result["metrics"]["mfu"] is None
    assert {"mean", "std_between_repeats", "n"} <= result["metrics"]["tokens_per_s"].keys()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("contention: other processes took 1.0 of 2 cores while the ranks compute with 2 (highest …)", "contention"),
        ("node1: contention: the hypervisor took 1.0 of 2 cores while the ranks compute with 2", "contention"),
        ("contention: 2 other processes on GPU 0", "gpu_contention"),
        ("node1: GPU 3 throttled (heat, by hardware) in 1 of 2 samples", "throttling"),
        ("warm-up not settled: its last steps took 1.20 times those of the window", "warmup"),
        ("warm-up too short to judge: 4 steps are needed", "missing"),
        ("noise: the 95 % interval of tokens/s is ± 7 %, from 3 repeats: about 4 would make it less than 5%", "noise"),
        ("a task of another package found that", "other"),
    ],
)
def test_reasons_of_schema_1_which_had_no_kinds_are_read(words: str, kind: str):
    [doubt] = Stability.model_validate({"verdict": "unstable", "reasons": [words]}).reasons
    assert (doubt.kind, doubt.words) == (kind, words)


def test_concurrent_runs_are_read_by_the_name_that_they_had_before():
    judged = Stability.model_validate({"verdict": "stable", "beside": ["tiny_R_1"]})
    assert judged.concurrent_runs == ["tiny_R_1"]
    assert "beside" not in judged.model_dump()


def test_a_result_older_than_clocks_and_neighbors_is_read(make_run):
    folder = make_run()
    written = json.loads(folder.result_path.read_text())
    for name in ("sm_clocks", "concurrent_runs"):
        del written["stability"][name]
    folder.result_path.write_text(json.dumps(written))
    judged = folder.result().stability
    assert (judged.verdict, judged.sm_clocks, judged.concurrent_runs) == ("unstable", [], [])


@pytest.mark.parametrize(
    ("status", "answers"), [("success", True), ("oom", True), ("skipped", True), ("timeout", False), ("killed", False)]
)
def test_which_endings_answer_the_run_s_question(status, answers):
    assert RunStatus(status).is_answer is answers


def test_a_diverged_loss_is_null_in_json_and_nan_again_when_read(tmp_path):
    diverged = SAMPLE.model_copy(update={"loss": math.nan})
    path = tmp_path / "samples.0.jsonl"
    path.write_text("".join(sample.model_dump_json() + "\n" for sample in (SAMPLE, diverged, SAMPLE)))
    assert '"loss":null' in path.read_text()
    assert [math.isnan(sample.loss) for sample in read_samples(path, StepSample)] == [False, True, False]


def test_records_are_valid_json_even_with_nan():
    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    written = to_json(Metric(mean=math.inf))
    assert json.loads(written, parse_constant=refuse)["mean"] is None
    assert math.isnan(Metric.model_validate_json(written).mean)


def test_samples_are_read_up_to_the_line_that_a_kill_cut_off(tmp_path):
    path = tmp_path / "samples.0.jsonl"
    whole = SAMPLE.model_dump_json()
    path.write_text(f"{whole}\n{whole}\n{whole[:30]}")
    assert read_samples(path, StepSample) == [SAMPLE, SAMPLE]


def test_a_line_that_a_loss_of_power_left_among_others_is_no_shorter_run(tmp_path):
    line = SAMPLE.model_dump_json()
    (tmp_path / "samples.jsonl").write_text("\n".join([line, "\0" * 50, line, ""]))
    with pytest.raises(ValueError, match="line 2 of 3 is no sample"):
        read_samples(tmp_path / "samples.jsonl", StepSample)


def test_an_unknown_field_is_an_error():
    with pytest.raises(ValidationError, match="tokens"):
        StepSample.model_validate(SAMPLE.model_dump() | {"tokens": 1})
