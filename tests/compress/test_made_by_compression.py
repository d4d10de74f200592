"""The model that a compression leaves, as its plan says, for the runs that start from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.compress.config import Prune
from llmexp.compress.made import pruned
from llmexp.record.plan import RunPlan

SHARED = ("hardware=cpu", "tracking=none")
TRAINED = (
    "{task:pretrain,model:tiny,engine:torch,measure:smoke,data:synthetic,parallelism.dp:1,task.save_model:true,"
    "sweep.run_name:trained}"
)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 100,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}


def plans(*cells: str) -> list[RunPlan]:
    jobs = jobs_of(run_parser().parse_args([f"hydra.sweeper.cells=[{','.join(cells)}]", *SHARED]))
    return [job.plan for job in jobs]


@pytest.mark.parametrize(
    ("method", "share", "changed"),
    [
        ("mlp", 0.25, {"intermediate_size": 75}),
        ("layers", 0.5, {"num_hidden_layers": 4}),
        ("heads", 0.5, {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}),
    ],
)
def test_a_pruned_shape_is_that_of_what_is_left(method: Any, share: float, changed: dict[str, int]) -> None:
    assert pruned(LLAMA, Prune(name=method, method=method, share=share)) == LLAMA | changed


def test_which_of_unlike_layers_go_is_not_known_before() -> None:
    recipe = Prune(name="layers", method="layers", share=0.5)
    assert pruned(LLAMA | {"layer_types": ["full", "sliding"] * 4}, recipe) is None
    alike = pruned(LLAMA | {"layer_types": ["full"] * 8}, recipe)
    assert alike is not None
    assert alike["layer_types"] == ["full"] * 4


def test_a_model_is_trained_pruned_and_served_in_one_sweep() -> None:
    trained, layers, served = plans(
        TRAINED,
        "{task:compress,model:'@trained',compress:layers,compress.share:0.5,sweep.run_name:layers}",
        "{task:serve,model:'@layers',engine:transformers,serve.rate:max}",
    )
    assert layers.config.starts_from is not None
    assert layers.config.starts_from.path == str(trained.folder / "repeat.0/model")
    assert layers.config.text.tokenizer == layers.config.starts_from.path, "the model reads by its own tokenizer"
    made = served.config.starts_from
    assert made is not None
    assert made.made is not None
    assert Path(made.path) == layers.folder / "repeat.0/model"
    assert made.made.config is not None
    before = layers.config.starts_from.made
    assert before is not None
    assert before.config is not None
    assert made.made.config["num_hidden_layers"] == before.config["num_hidden_layers"] // 2
    assert made.made.parameters is not None
    assert before.parameters is not None
    assert made.made.parameters < before.parameters


def test_a_model_that_is_there_by_now_is_still_the_same_run(tmp_path: Path) -> None:
    """Its folder may be an absolute path; the tokenizer that lies there afterwards changes nothing."""
    cells = (TRAINED, "{task:compress,model:'@trained',compress:layers}")
    words = [f"hydra.sweeper.cells=[{','.join(cells)}]", *SHARED, f"sweep.outputs={tmp_path}"]
    trained, before = (job.plan for job in jobs_of(run_parser().parse_args(words)))
    folder = Path(before.config.starts_from.path)
    assert folder == trained.folder / "repeat.0/model"
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")
    assert jobs_of(run_parser().parse_args(words))[1].plan.id == before.id
