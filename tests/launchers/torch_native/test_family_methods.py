"""Each family of conf/model with each method that a plan allows; what it refuses, it refuses in words.

F, R and Z3 of torch are in test_families.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from families import GIVEN
from marks import tier
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

DOCS = Path(__file__).parents[3] / "docs"
# By family and method of torch: the words of the skip.
REFUSED = {
    ("mamba2-2.7b", "L"): "L adds to matrices of attention and MLPs, and model=mamba2-2.7b has neither",
    ("mamba2-2.7b", "QL"): "L adds to matrices of attention and MLPs, and model=mamba2-2.7b has neither",
    ("mamba2-2.7b", "F"): "F: model=mamba2-2.7b has no attention",
    ("gpt-oss-20b", "F"): "F: its kernels have no attention sinks",
    ("deepseek-v3", "F"): "F: on a CPU torch's kernel takes values only as wide as keys",
}
ADAPTED = ("L", "QL")
SAME = [(name, method) for name in GIVEN for method in ("C", "Z2")]
# Compiling takes most of the time.
QUICK = {("olmo3-7b", "Z2")}
SHORT = {(name, "Z2") for name in GIVEN} | {("olmo3-7b", "C"), ("mamba2-2.7b", "C")}
RANKS = {"C": 1, "Z2": 2}
# Dense models, whose embeddings have a row for padding, and models with experts.
BY_DEEPSPEED = [
    (name, method) for name in ("olmo3-7b", "gemma3-1b", "qwen3-30b-a3b", "deepseek-v3") for method in ("Z2", "Z3")
]


def plan(name: str, method: str, ranks: int = 1, *words: str) -> TrainingPlan:
    fields = [f"model.config.{field}={value}" for field, value in GIVEN[name].items()]
    task = "finetune" if method in ADAPTED else "pretrain"
    return make_plan(
        *("hardware=cpu", "engine=torch", f"parallelism.dp={ranks}", "data=synthetic", "data.seq_len=32"),
        *("precision=fp32", f"model={name}", "optimizer.lr=1e-2", f"method={method}", f"task={task}"),
        *words,
        *fields,
    )


Losses = dict[str, list[float]]


def losses(observe: Callable[..., Measurement], plans: dict[str, TrainingPlan], ranks: int = 1) -> Losses:
    """The mean loss over all replicas in each step, by plan."""
    assert [made.skip for made in plans.values()] == [None] * len(plans)
    return {name: found[0] for name, found in observe(plans, ranks, "training_worker").items()}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("method", ["F", "R", "C", "L", "QL", "Z2", "Z3"])
def test_a_plan_refuses_what_cannot_be_by_its_reason(name: str, method: str) -> None:
    skip = plan(name, method, 2 if "Z" in method else 1).skip
    assert (skip.reason if skip else "").startswith(REFUSED.get((name, method), ""))
    assert (skip is None) == ((name, method) not in REFUSED)


def test_the_docs_have_what_plans_refuse() -> None:
    lines = (DOCS / "extending.md").read_text().splitlines()
    at = lines.index("| model | F | R, C, Z2, Z3 | L, QL |")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[at + 2 : at + 6]]
    told = {name: cells[1:] for cells in rows for name in cells[0].replace("`", "").split(", ")}
    for name in GIVEN:
        refused = [(name, method) in REFUSED for method in ("F", "R", "L")]
        assert [cell != "yes" for cell in told[name]] == refused


@pytest.mark.ranks
@pytest.mark.parametrize(("name", "method"), [pytest.param(*pair, marks=tier(pair, QUICK, SHORT)) for pair in SAME])
def test_compiled_and_partitioned_models_have_the_losses_of_none(
    observe: Callable[..., Measurement], name: str, method: str
) -> None:
    ranks = RANKS[method]
    found = losses(observe, {each: plan(name, each, ranks) for each in ("Naive", method)}, ranks)
    assert found[method] == pytest.approx(found["Naive"], rel=1e-5)


@pytest.mark.ranks
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in GIVEN if (name, "L") not in REFUSED])
def test_adapters_begin_as_the_model_and_train_themselves(observe: Callable[..., Measurement], name: str) -> None:
    """LoRA's second matrices are zero at first; 4-bit weights are near the whole ones. Recomputation changes none."""
    found = losses(
        observe,
        {
            "Naive": plan(name, "Naive"),
            "L": plan(name, "L"),
            "QL": plan(name, "QL"),
            "L+R": plan(name, "L", 1, "method=L+R"),
        },
    )
    assert found["L"][0] == pytest.approx(found["Naive"][0], rel=1e-5)
    assert found["QL"] == pytest.approx(found["L"], rel=1e-2)
    assert found["QL"] != pytest.approx(found["L"], rel=1e-5)
    assert found["L+R"] == pytest.approx(found["L"], rel=1e-5)
    assert found["L"][1:] != pytest.approx(found["Naive"][1:], rel=1e-5)


@pytest.mark.ranks
@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), BY_DEEPSPEED)
def test_deepspeed_partitions_families_as_torch_trains_them(
    observe: Callable[..., Measurement], name: str, method: str
) -> None:
    plain = losses(observe, {"Naive": plan(name, "Naive", 2)}, 2)["Naive"]
    partitioned = losses(observe, {method: plan(name, method, 2, "engine=deepspeed")}, 2)[method]
    assert partitioned == pytest.approx(plain, rel=1e-4)
