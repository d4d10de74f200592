from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmexp.cli.arguments import run_parser
from llmexp.cli.jobs import Job
from llmexp.cli.words import jobs_of
from llmexp.errors import ConfigError
from llmexp.schema import HfModel

SHARED = ("hardware=cpu", "tracking=none", "parallelism.dp=1")
TRAINED = "{task:pretrain,model:tiny,engine:torch,task.save_model:true,sweep.run_name:trained}"
TUNED = "{task:finetune,model:'@trained',engine:torch,task.save_model:true,sweep.run_name:tuned}"
SERVED = "{task:serve,model:'@tuned',engine:transformers}"
UNREADABLE = TRAINED.replace("tiny", "tiny,data:synthetic,model.vocab_size:256")


def planned(*cells: str, words: tuple[str, ...] = ()) -> list[Job]:
    listed = f"hydra.sweeper.cells=[{','.join(cells)}]"
    return jobs_of(run_parser().parse_intermixed_args([listed, *SHARED, *words]))


def models(jobs: list[Job]) -> list[str]:
    return [job.plan.config.model.name for job in jobs]


def made(job: Job) -> HfModel:
    model: HfModel = job.plan.config.model
    assert model.made
    return model


def test_a_chain_is_planned_before_any_of_it_is_there() -> None:
    trained, tuned, served = planned(TRAINED, TUNED, SERVED)
    assert [made(tuned).made.run, made(served).made.run] == [trained.plan.id, tuned.plan.id]
    assert made(tuned).path == f"{trained.plan.folder}/repeat.0/model"
    assert made(tuned).weights == "pretrained"
    assert tuned.plan.parameters == trained.plan.parameters
    assert tuned.plan.memory == trained.plan.memory
    assert tuned.plan.config.data.tokenizer == made(tuned).path
    assert [job.plan.awaited for job in (trained, tuned, served)] == [True, True, False]
    assert "@" not in " ".join(tuned.plan.overrides), "its command runs alone, from the folder"
    assert f"model={made(tuned).path}" in tuned.plan.overrides


@pytest.mark.parametrize("cells", [(SERVED, TUNED, TRAINED), (TUNED, SERVED, TRAINED)])
def test_no_run_comes_before_the_one_that_it_starts_from(cells: tuple[str, ...]) -> None:
    assert models(planned(*cells)) == ["tiny", "trained", "tuned"]


def test_an_id_is_made_of_the_id_of_the_run_that_makes_the_model_and_not_of_names_and_places() -> None:
    ids = [job.plan.id for job in planned(TRAINED, TUNED, SERVED)]
    elsewhere = planned(TRAINED, TUNED, SERVED, words=("sweep.name=other", "sweep.outputs=/elsewhere"))
    renamed = (cell.replace("trained", "first").replace("tuned", "second") for cell in (TRAINED, TUNED, SERVED))
    assert [job.plan.id for job in elsewhere] == ids
    assert [job.plan.id for job in planned(*renamed)] == ids
    others = [job.plan.id for job in planned(TRAINED.replace("torch", "deepspeed"), TUNED, SERVED)]
    assert not set(others) & set(ids)


def test_the_name_of_a_run_alone_changes_no_id() -> None:
    (named,), (plain,) = planned(TRAINED), planned(TRAINED.replace(",sweep.run_name:trained", ""))
    assert named.plan.id == plain.plan.id


def test_what_another_package_saves_is_known_as_its_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from llmexp.schema import MadeModel
    from llmexp.training.task import Training

    def smaller(self: Training, plan: object) -> MadeModel:
        found = known(self, plan)
        return found.model_copy(update={"folder": "kept", "config": found.config | {"num_hidden_layers": 1}})

    known = Training.made_model
    monkeypatch.setattr(Training, "made_model", smaller)
    trained, tuned = planned(TRAINED, TUNED)
    assert made(tuned).path == f"{trained.plan.folder}/kept"
    assert tuned.plan.parameters < trained.plan.parameters


@pytest.mark.parametrize(
    ("cells", "words", "said"),
    [
        ((TRAINED, SERVED), (), "unknown run of the sweep 'tuned': did you mean trained? choices are trained"),
        ((SERVED,), (), "model=@tuned: no run of the sweep has a name: set sweep.run_name=tuned for one that saves"),
        ((TRAINED.replace("tiny", "[tiny,125m]"), TUNED), (), "sweep.run_name=trained names 2 runs of the sweep"),
        ((TRAINED.replace("engine:torch", "engine:torch,seed:[1,2]"),), (), "sweep.run_name=trained names 2 runs"),
        ((TRAINED.replace("true", "false"), TUNED), (), "saves no model: set task.save_model=true there"),
        (
            (TRAINED, TUNED.replace("save_model:true", "save_model:false"), SERVED),
            (),
            "saves no model",
        ),
        ((TUNED.replace("@trained", "@tuned"),), (), "runs would start from each other: @tuned from @tuned"),
        (
            (TUNED.replace("@trained", "@b"), TUNED.replace("@trained", "@tuned").replace("name:tuned", "name:b")),
            (),
            "runs would start from each other",
        ),
        ((TRAINED.replace("tiny", "tinny"), TUNED), (), "unknown model 'tinny'"),
        ((TRAINED, TUNED), ("measure.order=interleaved",), "measure.order=interleaved: @trained has to end before"),
        ((TRAINED, TUNED.replace("{", "{model.made.run:x,")), (), "unknown key 'model.made'"),
        (
            (TRAINED.replace(":trained", ":'a b'"),),
            (),
            "sweep.run_name=a b: must be a name of at most 100 letters, digits",
        ),
        ((UNREADABLE, TUNED), (), "model=@trained will have no tokenizer"),
        (
            (UNREADABLE, SERVED.replace("@tuned", "@trained")),
            (),
            "says nothing of its tokenizer, which a server needs",
        ),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_starts(
    cells: tuple[str, ...], words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as error:
        planned(*cells, words=words)
    assert "\n" not in str(error.value)


def test_alone_a_run_starts_from_no_other(llmexp, here: Path) -> None:
    code, _, err = llmexp("search", "model=@trained", "optimizer.lr=interval(0.1,1)", "--minimize", "loss", *SHARED)
    assert code == 2
    assert "model=@trained names another run of the same sweep, and this is one run" in err


def test_a_control_run_takes_no_name(llmexp) -> None:
    jobs = planned(TRAINED, TUNED, words=("sweep.control=true",))
    assert [(job.plan.config.control, job.plan.config.sweep.run_name) for job in jobs] == [
        (False, "trained"),
        (False, "tuned"),
        (True, None),
    ]


def test_a_plan_and_its_table_show_what_a_run_starts_from(llmexp) -> None:
    cells = f"hydra.sweeper.cells=[{TRAINED},{TUNED},{SERVED}]"
    _, table, _ = llmexp("plan", cells, *SHARED)
    assert re.search(r"^1 +tiny .*sweep\.run_name=trained", table, re.MULTILINE)
    assert re.search(r"^2 +trained ", table, re.MULTILINE)
    _, whole, _ = llmexp("plan", cells, *SHARED, "--verbose")
    assert re.search(r"source +the model that run tuned leaves in outputs/main/trained_Naive_\w+/repeat", whole)
