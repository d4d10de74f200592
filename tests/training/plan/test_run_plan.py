from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmexp.record.folder import RunFolder
from llmexp.record.run_id import identity
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.training_plan import TrainingPlan


def test_a_plan_survives_its_file(plan, tmp_path: Path):
    made = plan("method=F+Z3", "model=7b")
    folder = RunFolder(tmp_path)
    folder.write(folder.plan_path, made)
    assert TrainingPlan.read(folder.plan_path) == made


@pytest.mark.parametrize(
    "words",
    [
        ["method=Z3+F"],
        ["sweep.name=other"],
        ["sweep.outputs=elsewhere"],
        ["tracking=none"],
        ["force=true"],
        ["rerun=all"],
        ["engine.launcher=deepspeed"],
    ],
)
def test_the_id_ignores_where_and_how_a_run_is_recorded(words, plan):
    assert plan("method=F+Z3", *words).id == plan("method=F+Z3").id


@pytest.mark.parametrize(
    "words",
    [
        ["optimizer=muon", "method=F"],
        ["kernels.chunked_loss=true"],
        ["memory.activation_offload=true"],
        ["engine=torch", "precision.linears=fp8"],
        ["engine=torch", "precision.qat=int4", "model.intermediate_size=384"],
        ["+engine.options.zero_optimization.reduce_bucket_size=5000000"],
    ],
)
def test_runs_that_take_another_time_are_not_alike(words, plan):
    assert plan("method=F", *words).duration_key != plan("method=F").duration_key


def test_recipes_of_fp8_are_not_alike(plan):
    words = ("engine=torch", "precision=fp8", "model.intermediate_size=384", "method=F")
    assert plan(*words).duration_key != plan(*words, "precision.scaling=rowwise").duration_key


def test_runs_of_other_lengths_are_alike(plan):
    assert plan("method=F", "data.seq_len=128", "seed=3").duration_key == plan("method=F").duration_key


@pytest.mark.parametrize(
    "words",
    [
        ["method=Z2"],
        ["seed=1"],
        ["batch.micro=2"],
        ["optimizer.lr=1e-3"],
        ["hardware=h100"],
        ["measure.steps=3"],
        ["precision=fp32"],
    ],
)
def test_the_id_holds_all_that_is_measured(words, plan):
    assert plan(*words).id != plan().id


def test_the_folder_is_named_for_people(plan):
    made = plan("method=R+F", "model=7b")
    assert made.folder_name == f"7b_F+R_{made.id}"


def test_a_key_that_a_later_version_adds_leaves_ids_as_they_are(plan):
    class LaterConfig(TrainingConfig):
        novel: int = 0

    made = plan()
    same, other = (LaterConfig(**dict(made.config), novel=novel) for novel in (0, 1))
    assert identity(made.config, made.engine_config, {"method": made.method}) == made.id
    assert identity(same, made.engine_config, {"method": made.method}) == made.id
    assert identity(other, made.engine_config, {"method": made.method}) != made.id


@pytest.mark.parametrize(
    "words", ["data=instructions data.files=[{}]", "data=text data.files=[{}]", "data=hf data.path={}"]
)
def test_other_data_at_the_same_place_are_another_run(plan, tmp_path, words: str):
    file = tmp_path / "mine.jsonl"

    def planned(answer: str) -> str:
        file.write_text(json.dumps({"instruction": "Add 1 and 2.", "output": answer}))
        return plan(*words.format(file).split()).id

    three = planned("3")
    assert planned("three") != three
    assert planned("3") == three
