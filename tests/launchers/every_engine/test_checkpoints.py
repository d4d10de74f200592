"""Every engine and layout trains from a checkpoint as transformers and PEFT read it.

What was trained, they load again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch
from marks import tier
from planning import Measurement, make_plan
from transformers import AutoModelForCausalLM

from llmexp.launchers.models.quantize import quantized_linear
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.long,
    # PEFT 0.21 asks transformers 5.23 by the old name.
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
]

WORKER = "keeping_worker"
RUNS = {
    "deepspeed": ("Naive", "Z3", "L", "L+Z3", "L+Z3+O", "QL", "QL+Z3", "P", "P+Z3"),
    "torch": ("Naive", "Z3", "L", "L+Z3", "L+Z3+O", "QL", "P+Z3"),
}
# The others are run by make test-sweeps.
SHORT = {"deepspeed": ("Z3", "L", "L+Z3+O", "QL+Z3", "P+Z3"), "torch": ("Naive", "L", "L+Z3", "QL")}
QUICK = {"deepspeed": ("Z3", "L"), "torch": ("L+Z3", "QL")}
FP32_TOLERANCE, LOWERED = 1e-5, 0.1


def runs(wanted: Callable[[str], bool] = lambda _: True) -> pytest.MarkDecorator:
    """Of those whose method is wanted."""
    cells = [(engine, method) for engine, methods in RUNS.items() for method in methods if wanted(method)]
    marked = [
        pytest.param(engine, method, marks=tier(method, QUICK[engine], SHORT[engine])) for engine, method in cells
    ]
    return pytest.mark.parametrize(("engine", "method"), marked)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In several shards."""
    folder = checkpoints.write(tmp_path_factory.mktemp("checkpoint"), shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def plan(folder: Path, engine: str, method: str, *overrides: str) -> TrainingPlan:
    model = ("model=hf", f"model.path={folder}", "model.weights=pretrained", "task=finetune", "hardware=cpu")
    # A rate at which two steps change the loss by much more than the tolerances.
    work = ("parallelism.dp=2", "data=text", "data.seq_len=64", "precision=fp32", "optimizer.lr=0.01")
    return make_plan(
        *model,
        *work,
        f"engine={engine}",
        f"method={method}",
        *(() if "P" in method else ("task.save_model=true",)),
        *overrides,
    )


@pytest.fixture(scope="module")
def trained(checkpoint: Path, observe: Callable[..., Measurement], asked: set[str]) -> Callable[[str], Measurement]:
    def run(engine: str) -> Measurement:
        return observe(
            {
                method: plan(checkpoint, engine, method)
                for method in RUNS[engine]
                if method in asked.union(QUICK[engine])
            },
            worker=WORKER,
        )

    return cache(run)


def published(checkpoint: Path, method: str) -> Any:
    """As transformers loads it; with QL its layers' matrices are quantized then."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    for name, module in list(model.model.named_modules()) if "QL" in method else ():
        if isinstance(module, torch.nn.Linear):
            model.model.set_submodule(name, quantized_linear(module, "nf4"))
    return model


def assert_computes_what_the_ranks_did(loaded: Any, plan: TrainingPlan, observed: dict[str, Any]) -> None:
    loss, logits = checkpoints.first_outputs(plan, loaded)
    assert loss == pytest.approx(observed["losses"][-1], abs=FP32_TOLERANCE)
    torch.testing.assert_close(
        logits, torch.load(Path(observed["folder"]).parent / "logits.0.pt"), rtol=0, atol=FP32_TOLERANCE
    )


# P's embeddings before the text change the loss from the start.
@runs(lambda method: "P" not in method)
def test_training_starts_at_the_loss_of_transformers_own_model(
    trained: Callable[[str], Measurement], checkpoint: Path, engine: str, method: str
) -> None:
    begun = trained(engine)[method][0]["losses"][0]
    expected, _ = checkpoints.first_outputs(plan(checkpoint, engine, method), published(checkpoint, method))
    assert begun == pytest.approx(expected, abs=FP32_TOLERANCE)


@runs(lambda method: "L" in method or "P" in method)
def test_peft_loads_the_adapter_and_gives_the_same_logits(
    trained: Callable[[str], Measurement], checkpoint: Path, engine: str, method: str
) -> None:
    from peft import PeftModel  # seconds, for all that collect this file

    observed = trained(engine)[method][0]
    # In training mode, for otherwise bitsandbytes packs 4-bit weights anew on CPU.
    loaded = PeftModel.from_pretrained(published(checkpoint, method), Path(observed["folder"]) / "adapter").train()
    assert loaded.peft_config["default"].base_model_name_or_path == str(checkpoint)
    assert observed["losses"][-1] < observed["losses"][0] - LOWERED
    assert_computes_what_the_ranks_did(loaded, plan(checkpoint, engine, method), observed)


@runs(lambda method: "P" not in method)
def test_transformers_loads_the_merged_model_and_gives_the_same_logits(
    trained: Callable[[str], Measurement], checkpoint: Path, engine: str, method: str
) -> None:
    observed = trained(engine)[method][0]
    loaded = AutoModelForCausalLM.from_pretrained(Path(observed["folder"]) / "model")
    assert_computes_what_the_ranks_did(loaded, plan(checkpoint, engine, method), observed)
    assert sorted(f"repeat.0/{path.name}" for path in Path(observed["folder"]).iterdir()) == observed["saved"]


@runs()
def test_the_result_names_the_weights(trained: Callable[[str], Measurement], engine: str, method: str) -> None:
    said = {trained(each)["L"][0]["weights"] for each in RUNS} | {trained(engine)[method][0]["weights"]}
    assert len(said) == 1
    assert said.pop().startswith("pretrained, ")
