"""Ranges in profiled steps, as a real trace of a real model shows them; and nothing of them afterwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from llmexp.launchers.attention.choice import implementation
from llmexp.launchers.models.compiled import compile_regions
from llmexp.launchers.training.module_ranges import ranges_of, step_with_ranges
from llmexp.measure.batch import MicroBatch
from llmexp.measure.kernels import trace_to
from llmexp.method import Method
from llmexp.record.breakdown import Breakdown
from llmexp.traces.breakdown import break_down, read_profile

LAYERS = 2


class Engine:
    """A training step of torch alone."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.optimizer = model, torch.optim.SGD(model.parameters(), lr=0.0)

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        loss: torch.Tensor = self.model(input_ids=batch.input_ids, labels=batch.labels).loss
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.fixture
def model() -> Callable[[str], LlamaForCausalLM]:
    def make(attention: str = "eager") -> LlamaForCausalLM:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            use_cache=False,
            attn_implementation=attention,
        )
        return LlamaForCausalLM(config).train()

    return make


def batch() -> MicroBatch:
    ids = torch.arange(32).reshape(2, 16)
    return MicroBatch(ids, ids, 32, 2)


def profiled(model: nn.Module, folder: Path, steps: int = 2) -> Breakdown:
    engine, path = Engine(model), folder / "rank0.json.gz"
    engine.forward(batch()).backward()  # what happens once, such as compilation, is not profiled
    with ranges_of(model), trace_to(path):
        for _ in range(steps):
            step_with_ranges(engine, [batch()], lambda phase: None)
    return break_down(read_profile(path))


def places(found: Breakdown, phase: str, *, recomputed: bool = False) -> set[str]:
    return {"/".join(row.path) for row in found.modules if (row.phase, row.recomputed) == (phase, recomputed)}


ATTENTION = {f"Decoder layer/Attention/{part}" for part in ("QKV", "RoPE", "Output")}
MLP = {f"Decoder layer/MLP/{part}" for part in ("Gate", "Up", "Down", "Activation")}
EAGER = {f"Decoder layer/Attention/Core attention/{part}" for part in ("Bmm0", "Softmax", "Bmm1")}
AROUND = {"Embedding", "Decoder layer/RMSNorm", "RMSNorm", "LM head", "Loss"}


def test_each_part_of_the_model_has_its_time_in_forward_and_in_backward(tmp_path: Path, model) -> None:
    found = profiled(model(), tmp_path)
    assert found.steps == 2
    assert [phase.phase for phase in found.phases] == ["", "forward", "backward", "optimizer"]
    assert places(found, "forward") >= ATTENTION | MLP | EAGER | AROUND | {"RoPE"}
    assert places(found, "backward") >= ATTENTION | MLP | EAGER | AROUND
    assert places(found, "optimizer") == {""}
    assert not places(found, "backward", recomputed=True)
    forward = next(phase for phase in found.phases if phase.phase == "forward")
    inside = [row for row in found.modules if row.phase == "forward" and row.path]
    assert sum(row.gemm_ns for row in inside) == forward.gemm_ns > 0


def test_a_matrix_product_belongs_to_its_own_module(tmp_path: Path, model) -> None:
    rows = [row for row in profiled(model(), tmp_path).modules if row.gemm_ns and not row.recomputed]
    assert {row.path[-1] for row in rows} == {"QKV", "Bmm0", "Bmm1", "Output", "Gate", "Up", "Down", "LM head"}


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
def test_what_is_recomputed_is_apart_from_backward(tmp_path: Path, model) -> None:
    recomputing = model()
    recomputing.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    found = profiled(recomputing, tmp_path)
    assert places(found, "backward", recomputed=True) >= ATTENTION | EAGER | {"Decoder layer/RMSNorm"}
    assert not places(found, "backward", recomputed=True) & {"Embedding", "LM head", "Loss", "RMSNorm"}
    assert places(found, "backward") >= ATTENTION | MLP | EAGER


def test_fused_attention_is_one_part(tmp_path: Path, model) -> None:
    implementation(Method.parse("F", "pretrain").techniques, torch.device("cpu"))
    found = profiled(model("llmexp_sdpa"), tmp_path)
    for phase in ("forward", "backward"):
        assert "Decoder layer/Attention/Core attention" in places(found, phase)
        assert not places(found, phase) & EAGER


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_compiled_layer_is_one_part_and_is_not_compiled_again(
    tmp_path: Path, model, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = model()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    compile_regions(compiled)
    counted = torch._dynamo.utils.counters["stats"]
    Engine(compiled).forward(batch()).backward()
    before = counted["unique_graphs"]
    found = profiled(compiled, tmp_path)
    assert counted["unique_graphs"] == before
    for phase in ("forward", "backward"):
        inside = {place for place in places(found, phase) if place.startswith("Decoder layer")}
        assert inside == {"Decoder layer (compiled)"}


def test_nothing_is_left_and_the_loss_is_the_same(tmp_path: Path, model) -> None:
    watched = model()
    source = __import__(type(watched).__module__, fromlist=["x"])
    before = (watched.loss_function, source.apply_rotary_pos_emb, source.eager_attention_forward)
    loss = Engine(watched).forward(batch())
    with ranges_of(watched):
        assert source.apply_rotary_pos_emb is not before[1]
        assert torch.equal(Engine(watched).forward(batch()), loss)
    assert (watched.loss_function, source.apply_rotary_pos_emb, source.eager_attention_forward) == before
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in watched.modules())


def test_an_error_in_a_profiled_step_leaves_nothing_either(model) -> None:
    watched = model()
    with pytest.raises(IndexError), ranges_of(watched):
        watched(input_ids=torch.full((1, 4), 999))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in watched.modules())
