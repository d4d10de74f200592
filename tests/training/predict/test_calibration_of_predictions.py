"""Multipliers that measured runs give: what they recover, what moves them how far, and which runs count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from llmexp.launch.stack import stack_digest
from llmexp.record.calibration_file import CALIBRATION, read_calibrations
from llmexp.record.folder import RunFolder
from llmexp.record.predicted import Prediction
from llmexp.record.result import Metric, RunResult, Stability
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.calibration import (
    COMMUNICATION,
    COMPUTING,
    HOST,
    LAUNCHES,
    UPDATE,
    Evidence,
    multipliers_of,
)
from llmexp.training.predict.learning import learn
from llmexp.training.predict.predictor import predictor_of
from tests.planning import make_plan

WORDS = ("model=7b", "hardware=a100", "precision=bf16_pure", "data.seq_len=350", "optimizer=adamw_cpuadam")
THREE = ("F", "F+Z3", "F+Z2+O")
DEVICE = "NVIDIA A100-SXM4-80GB"
TRUTH = {COMPUTING: 1.15, LAUNCHES: 0.6, COMMUNICATION: 1.8, UPDATE: 1.3, HOST: 0.4}


def evidence(method: str, *words: str, off: float = 1.0) -> Evidence:
    """Of a machine whose terms take the multiples TRUTH."""
    own = [word for word in WORDS if not any(word.partition("=")[0] == other.partition("=")[0] for other in words)]
    predictor = predictor_of(make_plan(*own, f"method={method}", *words))
    return Evidence(predictor.step(TRUTH).whole * off, lambda multipliers: predictor.step(multipliers).whole)


def many() -> list[Evidence]:
    methods = (*THREE, "Naive", "Z2")
    sizes = [(method, f"batch.micro={micro}") for method in methods for micro in (1, 16)]
    sizes += [(method, "model=1b") for method in methods]
    return [evidence(*size) for size in sizes]


def test_many_runs_move_the_multipliers_all_the_way() -> None:
    found = multipliers_of(many())
    assert found == pytest.approx(TRUTH, rel=0.12)
    assert max(abs(run.error(found)) for run in many()) < 0.06


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("parallelism.tp=8",), "tensor parallelism"),
        (("parallelism.cp=2", "data.seq_len=4096"), "context parallelism"),
        (("parallelism.pp=2", "batch.accumulation=4"), "pipeline"),
    ],
)
def test_slower_links_lengthen_every_kind_of_parallelism(words: tuple[str, ...], part: str) -> None:
    own = [word for word in WORDS if not word.startswith(("optimizer", "data"))]
    predictor = predictor_of(make_plan(*own, "engine=megatron", "method=F", *words))
    usual, slow = (predictor.step({COMMUNICATION: times}).parts_s for times in (1.0, 50.0))
    assert slow[part] > 1.02 * usual[part]
    assert slow["forward"] == usual["forward"]


def test_one_run_moves_its_own_class_partly_and_leaves_the_others() -> None:
    run = evidence("Z2+O")
    found = multipliers_of([run])
    assert found[COMMUNICATION] == pytest.approx(1.0, abs=0.1)
    assert 0.4 < found[HOST] < 0.6
    assert abs(run.error({})) > 10 * abs(run.error(found)) > 0


def test_no_run_changes_nothing() -> None:
    assert multipliers_of([]) == dict.fromkeys(TRUTH, 1.0)


def test_an_odd_run_decides_nothing() -> None:
    odd = multipliers_of([*many(), evidence("F", "batch.micro=16", "data.seq_len=400", off=5.0)])
    assert odd[COMPUTING] == pytest.approx(multipliers_of(many())[COMPUTING], rel=0.06)
    assert max(abs(run.error(odd)) for run in many()) < 0.06


def test_the_start_does_not_matter() -> None:
    assert multipliers_of(many(), {HOST: 3.0, COMPUTING: 0.5}) == pytest.approx(multipliers_of(many()), rel=1e-3)


Write = Callable[..., RunFolder]


@pytest.fixture
def write(tmp_path: Path, result_of: Callable[..., RunResult]) -> Write:
    """Write a run of the made-up machine, which ended at this second."""

    def made(
        method: str, second: int = 0, status: str = "success", words: Sequence[str] = (), **fields: object
    ) -> RunFolder:
        plan = planned(tmp_path, method, *words)
        folder = RunFolder(tmp_path / plan.config.sweep.name / plan.folder_name)
        rate = plan.amount / predictor_of(plan).step(TRUTH).whole
        known = {
            "metrics": {"tokens_per_s": Metric(mean=rate)},
            "environment": {"gpus": {"devices": [{"name": DEVICE}]}},
            "stack": stack_digest(plan, DEVICE),
            "ended_at": f"2026-01-01T00:00:{second:02}.000+00:00",
        }
        folder.write(folder.plan_path, plan)
        folder.write(folder.result_path, result_of(plan, status, **known | fields))
        return folder

    return made


def planned(outputs: Path, method: str, *words: str) -> TrainingPlan:
    return make_plan(*WORDS, f"method={method}", f"sweep.outputs={outputs}", *words)


def prediction(outputs: Path, method: str, *words: str) -> Prediction:
    found = planned(outputs, method, *words).predicted
    assert found is not None
    return found


def test_plans_are_calibrated_by_the_runs_of_their_outputs_folder(tmp_path: Path, write: Write) -> None:
    before = prediction(tmp_path, "F+R+Z3")
    learn(tmp_path, [write(method) for method in THREE])
    after = prediction(tmp_path, "F+R+Z3")
    assert after.source == f"{before.source}, calibrated by 3 runs here"
    assert (after.calibrated_by, after.uncalibrated) == (3, before.rate)
    truth = 1 / predictor_of(planned(tmp_path, "F+R+Z3")).step(TRUTH).whole
    amount = planned(tmp_path, "F+R+Z3").amount
    assert abs(after.rate / (amount * truth) - 1) < 0.1 < abs(before.rate / (amount * truth) - 1)
    assert sum(after.parts_s.values()) == pytest.approx(amount / after.rate)


def test_three_runs_narrow_the_interval_and_two_do_not(tmp_path: Path, write: Write) -> None:
    before = prediction(tmp_path, "F+R+Z3+O")
    runs = [write(method) for method in THREE]
    learn(tmp_path, runs[:2])
    assert prediction(tmp_path, "F+R+Z3+O").holds == pytest.approx(before.holds)
    learn(tmp_path, runs[2:])
    low, high = prediction(tmp_path, "F+R+Z3+O").holds
    assert high / low < 0.5 * before.holds[1] / before.holds[0]


def test_a_runs_own_measurement_never_calibrates_its_prediction(tmp_path: Path, write: Write) -> None:
    before = prediction(tmp_path, "F+Z3")
    learn(tmp_path, [write("F+Z3")])
    assert prediction(tmp_path, "F+Z3") == before
    assert prediction(tmp_path, "Z3").calibrated_by == 1
    learn(tmp_path, [write("F")])
    assert prediction(tmp_path, "F+Z3").calibrated_by == 1
    others = read_calibrations(tmp_path)[0].for_run(planned(tmp_path, "F+Z3").id)[0]
    assert others[COMMUNICATION] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    "fields", [{"status": "oom"}, {"evidence": "emulated"}, {"stack": "of_another"}, {"metrics": {}}]
)
def test_runs_that_tell_nothing_do_not_count(tmp_path: Path, write: Write, fields: dict[str, object]) -> None:
    learn(tmp_path, [write("F", **fields)])
    assert read_calibrations(tmp_path) == []
    assert prediction(tmp_path, "F+Z3").calibrated_by == 0


def test_unstable_runs_count_only_where_there_are_no_others(tmp_path: Path, write: Write) -> None:
    unstable = Stability(verdict="unstable")
    learn(tmp_path, [write("F", stability=unstable), write("F+Z3", stability=unstable)])
    assert prediction(tmp_path, "F+Z2").calibrated_by == 2
    learn(tmp_path, [write("Naive")])
    assert prediction(tmp_path, "F+Z2").calibrated_by == 1


def test_a_new_stack_leaves_the_runs_of_the_old_one_behind(tmp_path: Path, write: Write) -> None:
    learn(tmp_path, [write(method) for method in THREE])
    text = (tmp_path / CALIBRATION).read_text()
    (tmp_path / CALIBRATION).write_text(
        text.replace(f'"stack": "{read_calibrations(tmp_path)[0].stack}"', '"stack": "x"')
    )
    assert prediction(tmp_path, "F+R").calibrated_by == 0


@pytest.mark.parametrize("word", ["hardware=h100", "engine=torch"])
def test_another_machine_or_engine_is_not_calibrated(tmp_path: Path, write: Write, word: str) -> None:
    learn(tmp_path, [write(method) for method in THREE])
    assert prediction(tmp_path, "F+Z2").calibrated_by == 3
    assert prediction(tmp_path, "F+Z2", word).calibrated_by == 0


def test_the_newest_runs_count(tmp_path: Path, write: Write) -> None:
    runs = [write("F", second, words=[f"batch.micro={second + 1}"]) for second in range(14)]
    learn(tmp_path, runs)
    kept = [run.run for run in read_calibrations(tmp_path)[0].runs]
    assert kept == [str(run.path.relative_to(tmp_path)) for run in reversed(runs)][:12]


def test_a_damaged_file_calibrates_nothing_and_is_written_anew(tmp_path: Path, write: Write) -> None:
    (tmp_path / CALIBRATION).write_text("{")
    assert prediction(tmp_path, "F+Z2").calibrated_by == 0
    learn(tmp_path, [write(method) for method in THREE])
    assert prediction(tmp_path, "F+Z2").calibrated_by == 3


def test_the_file_says_which_runs_it_rests_on_and_how_far_off_each_was(tmp_path: Path, write: Write) -> None:
    learn(tmp_path, [write(method) for method in THREE])
    (found,) = read_calibrations(tmp_path)
    assert (found.hardware, found.device, found.engine) == ("a100", DEVICE, "deepspeed")
    run = next(run for run in found.runs if "Z2+O" in run.run)
    assert run.uncalibrated_s == pytest.approx(
        planned(tmp_path, "F+Z2+O").amount / prediction(tmp_path, "F+Z2+O").uncalibrated
    )
    assert run.held_out_s != pytest.approx(run.uncalibrated_s)
    assert run.step_s == pytest.approx(predictor_of(planned(tmp_path, "F+Z2+O")).step(TRUTH).whole)
