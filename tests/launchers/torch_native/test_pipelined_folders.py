"""Models of a folder, with its weights, in the stages of engine=torch on real gloo ranks: the training of one rank."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, product
from pathlib import Path

import pytest
import torch
from cut_training import FP32_TOLERANCE, mean_losses
from marks import tier
from planning import Measurement
from test_cut_folders import KINDS, folder, plan
from transformers import Qwen3MoeConfig

from llmexp.errors import ConfigError

pytestmark = pytest.mark.ranks

LAYERS = 4
# Of weights: Adam makes steps of one size from gradients that are little more than rounding errors.
WEIGHT_TOLERANCE = 1e-4
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def looped(schedule: str, more: str = "") -> str:
    return f"parallelism.pp=2 parallelism.virtual_stages=2 parallelism.schedule={schedule} {more}"


LAYOUTS = {
    "mistral, zbv": looped("zbv"),
    "windows, interleaved, R": looped("interleaved", "method=R"),
    "mixtral, dualpipev": looped("dualpipev"),
    "qwen3_moe, zero_bubble": looped("zero_bubble"),
    "tied, gpipe, clipped": "parallelism.pp=2 parallelism.schedule=gpipe optimizer.clip_norm=0.5",
    "tied, looped_bfs": looped("looped_bfs"),
    "tied, zero_bubble": looped("zero_bubble"),
    "tied, zbv": looped("zbv"),
    "tied, dualpipev, clipped": looped("dualpipev", "optimizer.clip_norm=0.5"),
    "tied, pp 4": "parallelism.pp=4",
    "tied, tp": "parallelism.pp=2 parallelism.tp=2",
    "tied, tp, zbv": looped("zbv", "parallelism.tp=2 parallelism.sequence=true"),
    "tied, dp 2, sgd": "parallelism.pp=2 parallelism.dp=2 optimizer=sgd optimizer.lr=0.1",
    "tied, Z3, tp, dp 2, clipped": (
        "parallelism.pp=2 parallelism.tp=2 parallelism.dp=2 method=Z3 optimizer.clip_norm=0.5"
    ),
    "qwen3_moe, Z3, dp 2, sgd": looped("interleaved", "parallelism.dp=2 method=F+Z3 optimizer=sgd optimizer.lr=0.1"),
    "windows, Z2, dp 2": "parallelism.pp=2 parallelism.dp=2 method=R+Z2",
    "llama, pp 4": "parallelism.pp=4",
    "llama, tp": "parallelism.pp=2 parallelism.tp=2 parallelism.sequence=true",
    "qwen3, cp, sgd": "parallelism.pp=2 parallelism.cp=2 optimizer=sgd optimizer.lr=0.1",
}
QUICK = {"mistral, zbv", "tied, gpipe, clipped"}


@pytest.fixture
def four_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, config in KINDS.items():
        said = {name: value for name, value in config.to_dict().items() if name != "layer_types"}
        monkeypatch.setitem(KINDS, kind, type(config)(**said | {"num_hidden_layers": LAYERS}))


def difference(ours: list[float], theirs: list[float]) -> float:
    """The distance of two matrices, as a share of the second one's norm."""
    one, other = (torch.tensor(values, dtype=torch.float64) for values in (ours, theirs))
    return float(torch.dist(one, other) / other.norm())


@pytest.mark.usefixtures("four_layers")
@pytest.mark.parametrize("name", [pytest.param(name, marks=tier(name, QUICK, LAYOUTS)) for name in LAYOUTS])
def test_stages_compute_what_one_rank_computes(observe: Callable[..., Measurement], tmp_path: Path, name: str) -> None:
    place, words = folder(name.partition(",")[0], tmp_path), LAYOUTS[name]
    made = plan(place, words)
    assert made.skip is None
    whole = plan(place, " ".join(word for word in words.split() if word.startswith("optimizer")))
    (alone,) = observe({"whole": whole}, 1, "stages_worker")["whole"]
    ranks = observe({name: made}, made.processes, "stages_worker")[name]
    assert alone["loss"][-1] < alone["loss"][0] - 0.01
    assert mean_losses(ranks) == pytest.approx(alone["loss"], rel=FP32_TOLERANCE)
    for rank, what in product(ranks, ("gradient_norm", "first", "trainable_parameters")):
        assert rank[what] == pytest.approx(alone[what], rel=FP32_TOLERANCE), what
    expected = alone["weights"]
    if "tied" in name:
        expected[HEAD] = expected[EMBEDDING]
        copies = [rank["weights"][end] for rank in ranks for end in (EMBEDDING, HEAD) if end in rank["weights"]]
        assert all(copy == copies[0] for copy in copies)
    assert {weight for rank in ranks for weight in rank["weights"]} == expected.keys()
    for weight, values in chain(*(rank["weights"].items() for rank in ranks)):
        assert difference(values, expected[weight]) < WEIGHT_TOLERANCE, weight
    assert made.memory is not None
    for kind in ("parameters", "gradients", "optimizer"):
        assert max(rank["state"][kind] for rank in ranks) == getattr(made.memory, kind).device, kind


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("deepseek_v3", "it takes models of architecture llama, mistral, qwen3, mixtral, qwen3_moe, not model="),
        ("biased", "without biases, and config.json of model=biased has some"),
        ("dropping", "drop different scores by attention_dropout=0.1 of config.json: set 0"),
        ("balancing", "output_router_logits of config.json adds a loss of all layers, and no stage has all: set it"),
    ],
)
def test_what_a_folders_stages_would_train_otherwise_is_a_skip(tmp_path: Path, kind: str, reason: str) -> None:
    KINDS[kind].save_pretrained(tmp_path / kind)
    skip = str(plan(tmp_path / kind, "model.weights=random parallelism.pp=2").skip)
    assert skip.startswith("engine=torch with parallelism.pp=2: ")
    assert reason in skip


@pytest.mark.usefixtures("four_layers")
@pytest.mark.parametrize("schedule", ["interleaved", "zbv"])
def test_two_ranks_update_a_tied_embedding_by_the_optimizers_that_were_tried(tmp_path: Path, schedule: str) -> None:
    KINDS["tied"].save_pretrained(tmp_path)
    skip = plan(tmp_path, f"model.weights=random {looped(schedule)} optimizer=lion").skip
    assert skip is None if schedule == "zbv" else "two ranks update the weight of tied embeddings alike" in str(skip)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("parallelism.pp=3", r"parallelism\.pp=3 does not divide model\.num_layers=4: choices are 1, 2, 4"),
        (
            looped("zbv").replace("pp=2", "pp=4"),
            "virtual_stages=2 does not divide the 4 layers / pp 4=1: choices are 1",
        ),
    ],
)
@pytest.mark.usefixtures("four_layers")
def test_layers_that_make_no_even_stages_are_refused(tmp_path: Path, words: str, reason: str) -> None:
    KINDS["qwen3_moe"].save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=reason):
        plan(tmp_path, f"model.weights=random {words}")


@pytest.mark.usefixtures("four_layers")
@pytest.mark.parametrize("method", ["method=Naive", "parallelism.dp=2 method=Z3"])
def test_the_bytes_of_unequal_layers_in_stages_are_not_known(tmp_path: Path, method: str) -> None:
    said = KINDS["qwen3_moe"].to_dict() | {"mlp_only_layers": [0]}
    Qwen3MoeConfig(**said).save_pretrained(tmp_path)
    made = plan(tmp_path, f"model.weights=random parallelism.pp=2 {method}")
    assert (made.skip, made.memory) == (None, None)
    assert made.uncounted["memory"] == "pp 2 cuts the model, and llmexp counts stages of equal layers only"
