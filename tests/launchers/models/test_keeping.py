"""memory.keep and memory.recompute_layers: losses and gradients are R's, and what is kept does not run again."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import stepping
import torch
from flops_worker import uncounted
from planning import make_plan
from tiny_architectures import configured
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

CPU = torch.device("cpu")
STEPS, LORA = 2, ("task=finetune", "data=synthetic", "method=L+F+R")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
]


def train(*words: str) -> tuple[list[float], list[Tensor | None], int, Any]:
    """Losses, the last pass's gradients, all FLOPs and what ran."""
    from llmexp.launchers.torch_native import worker  # DDP's optimizers take a second to import

    fixed = ["hardware=cpu", "engine=torch", "parallelism.dp=1", "precision=fp32"]
    fixed += [] if "model=hf" in words else ["model=tiny", "model.num_layers=2"]
    plan = make_plan(*fixed, "data.seq_len=32", "batch.micro=2", *words)
    assert plan.skip is None
    training: Any = worker.build(plan, CPU)
    losses = []
    gradients: list[Tensor | None] = []
    with FlopCounterMode(display=False, custom_mapping=uncounted()) as counter:
        for batches in islice(stepping.batches_of(plan, training, STEPS, CPU), STEPS):
            for batch in batches:
                loss = training.forward(batch)
                training.backward(loss)
                gradients = [whole(each.grad) for each in training.module.parameters()]
                training.step()
                losses.append(loss.item())
    return losses, gradients, counter.get_total_flops(), training.what_ran()


def whole(gradient: Any) -> Tensor | None:
    full = getattr(gradient, "full_tensor", None)
    return None if gradient is None else (full() if full else gradient).clone()


@pytest.mark.parametrize(
    ("keep", "kept", "words"),
    [
        ("attention", 1, ["method=F+R"]),
        # Seven matrices beside attention, and two of LoRA's for each.
        ("products", 8, ["method=F+R"]),
        ("products", 22, LORA),
        ("products", 8, ["method=F+R+Z3"]),
    ],
)
@pytest.mark.usefixtures("alone")
def test_what_is_kept_does_not_run_again(keep: str, kept: int, words: list[str]) -> None:
    losses, gradients, flops, ran = train(*words)
    assert "kept_results" not in ran
    found = train(f"memory.keep={keep}", *words)
    assert found[0] == losses
    torch.testing.assert_close(found[1], gradients, atol=0, rtol=0)
    assert found[2] < flops
    assert found[3]["kept_results"] == kept


@pytest.mark.usefixtures("alone")
def test_layers_of_a_folder_keep_it_too(tmp_path: Path) -> None:
    config = configured("qwen3")
    config.architectures = ["Qwen3ForCausalLM"]
    config.save_pretrained(tmp_path)
    words = ("model=hf", f"model.path={tmp_path}", "data=synthetic", "method=F+R")
    losses, gradients, flops, _ = train(*words)
    found = train("memory.keep=products", *words)
    assert found[0] == losses
    torch.testing.assert_close(found[1], gradients, atol=0, rtol=0)
    assert found[2] < flops
    assert found[3]["kept_results"] == 8


@pytest.mark.parametrize("words", [["method=F+R"], ["method=F+R+Z3"], LORA, ["method=F+R", "memory.keep=attention"]])
@pytest.mark.usefixtures("alone")
def test_only_the_first_layers_run_again(words: list[str]) -> None:
    every, first = train(*words), train("memory.recompute_layers=1", *words)
    none = train(*(word.replace("+R", "") for word in words if "keep" not in word))
    assert first[0] == every[0]
    torch.testing.assert_close(first[1], every[1], atol=0, rtol=0)
    assert none[2] < first[2] < every[2]
