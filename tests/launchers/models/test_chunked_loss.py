"""kernels.chunked_loss: losses and gradients are those of the ordinary head, and few logits exist at a time."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import stepping
import torch
from planning import make_plan
from tiny_architectures import configured
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from llmexp.launchers.models import loss_in_chunks
from llmexp.launchers.models.chunked_loss import LossHead
from llmexp.launchers.models.loss_in_chunks import Targets
from llmexp.training.knobs import PLAIN_HEADS

CPU = torch.device("cpu")
TOKENS, ROWS = 64, 7
CHUNKS = 10

pytestmark = [
    pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_in_chunks, "LOSS_ROWS", ROWS)


def train(chunked: bool, *words: str) -> tuple[list[float], list[Tensor | None], int, Any]:
    """Two steps of two passes: losses, the gradients as the optimizer gets them, FLOPs and what ran."""
    from llmexp.launchers.torch_native import worker  # DDP's optimizers take a second to import

    fixed = ["hardware=cpu", "engine=torch", "parallelism.dp=1", "precision=fp32"]
    fixed += [] if "model=hf" in words else ["model=tiny", "model.num_layers=2"]
    key = f"kernels.chunked_loss={str(chunked).lower()}"
    plan = make_plan(*fixed, key, "data.seq_len=32", "batch.micro=2", "batch.accumulation=2", *words)
    assert plan.skip is None
    training: Any = worker.build(plan, CPU)
    losses, gradients = [], []
    training.layout.optimizer.register_step_pre_hook(
        lambda *_: gradients.extend(whole(parameter.grad) for parameter in training.module.parameters())
    )
    with FlopCounterMode(display=False) as counter:
        for batches in islice(stepping.batches_of(plan, training, 2, CPU), 2):
            for batch in batches:
                loss = training.forward(batch)
                assert (loss.dtype, loss.shape) == (torch.float32, ())
                training.backward(loss)
                training.step()
                losses.append(loss.item())
    return losses, gradients, counter.get_total_flops(), training.what_ran()


def whole(gradient: Any) -> Tensor | None:
    full = getattr(gradient, "full_tensor", None)
    return None if gradient is None else (full() if full else gradient).clone()


@pytest.mark.parametrize(
    "words",
    [
        ["method=F"],
        ["method=R"],
        ["method=Z1"],
        ["method=Z3"],
        ["method=F", "model.tie_embeddings=true"],
        ["method=L", "task=finetune", "data=synthetic"],
        ["method=F", "memory.activation_offload=true"],
        ["method=R", "kernels.fused_accumulation=true"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("alone")
def test_losses_gradients_and_flops_are_those_of_the_ordinary_head(words: list[str]) -> None:
    losses, gradients, flops, ran = train(False, *words)
    assert "loss_chunks" not in ran
    found = train(True, *words)
    assert found[0] == pytest.approx(losses, rel=1e-6)
    torch.testing.assert_close(found[1], gradients, atol=1e-6, rtol=1e-5)
    assert found[2] == flops
    assert found[3]["loss_chunks"] == CHUNKS


def folder(family: str, place: Path, **changed: Any) -> list[str]:
    """The words of a folder with a model's configuration, whose weights are random."""
    config = configured(family)
    config.update(changed)
    config.save_pretrained(place)
    return ["model=hf", f"model.path={place}", "data=synthetic"]


@pytest.mark.parametrize("family", PLAIN_HEADS)
@pytest.mark.usefixtures("alone")
def test_heads_of_folders_compute_it_too(family: str, tmp_path: Path) -> None:
    words = folder(family, tmp_path)
    losses, gradients, flops, _ = train(False, *words)
    found = train(True, *words)
    assert found[0] == pytest.approx(losses, rel=1e-6)
    torch.testing.assert_close(found[1], gradients, atol=1e-6, rtol=1e-5)
    assert found[2:] == (flops, found[3] | {"loss_chunks": CHUNKS})


@pytest.mark.parametrize(
    ("family", "changed", "reason"),
    [
        ("jamba", {}, r"it takes architecture llama, .*, not model=\w+ \(jamba\), which may change its logits before"),
        ("gemma3_text", {"final_logit_softcapping": 30.0}, r"final_logit_softcapping of model=\w+ changes logits"),
        ("llama", {"auto_map": {"AutoModelForCausalLM": "own.Own"}}, r"auto_map in the config\.json of model\.path="),
    ],
)
def test_a_folder_whose_logits_may_change_is_refused(
    family: str, changed: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    words = folder(family, tmp_path, **changed)
    trusted = ["model.trust_remote_code=true"] if changed.get("auto_map") else []
    made = make_plan("engine=torch", "hardware=cpu", "kernels.chunked_loss=true", *words, *trusted)
    assert made.skip
    assert re.search(f"^kernels.chunked_loss=true: {reason}", made.skip.reason)


def head_and_inputs(dtype: torch.dtype) -> tuple[LossHead, Tensor, Tensor]:
    torch.manual_seed(0)
    head = LossHead(16, 100, bias=False, dtype=dtype)
    labels = torch.randint(100, (2, TOKENS // 2))
    labels[0, 3:9] = labels[1, :20] = -100
    return head, torch.randn(2, TOKENS // 2, 16, dtype=dtype, requires_grad=True), labels


def ordinary(head: nn.Linear, hidden: Tensor, labels: Tensor) -> Tensor:
    logits = functional.linear(hidden, head.weight)[:, :-1].float()
    return functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_masked_labels_count_nowhere(dtype: torch.dtype, within: float) -> None:
    head, hidden, labels = head_and_inputs(dtype)
    wanted = ordinary(head, hidden, labels)
    expected = torch.autograd.grad(3 * wanted, (hidden, head.weight))
    loss = head.loss(hidden, Targets.of(labels))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(wanted.item(), abs=1e-6)
    for found, one in zip(torch.autograd.grad(3 * loss, (hidden, head.weight)), expected, strict=True):
        torch.testing.assert_close(found, one, atol=within * one.abs().max().item(), rtol=0)


def test_a_frozen_head_gets_no_gradient_and_without_labels_it_gives_logits() -> None:
    head, hidden, labels = head_and_inputs(torch.float32)
    head.weight.requires_grad_(False)
    assert head(hidden).shape == (2, TOKENS // 2, 100)
    head.loss(hidden, Targets.of(labels)).backward()
    assert head.weight.grad is None
    assert hidden.grad is not None


class Largest(TorchDispatchMode):
    """The most elements of a tensor that an operator made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.elements = max([self.elements, *(x.numel() for x in tree_leaves(made) if isinstance(x, Tensor))])
        return made


def test_logits_of_more_than_a_chunk_never_exist() -> None:
    head, hidden, labels = head_and_inputs(torch.float32)
    with Largest() as whole_logits:
        ordinary(head, hidden, labels).backward()
    with Largest() as chunked:
        head.loss(hidden, Targets.of(labels)).backward()
    assert whole_logits.elements == TOKENS * 100
    # The weight's gradient is larger than a chunk's logits here.
    assert chunked.elements == head.weight.numel() > ROWS * 100
