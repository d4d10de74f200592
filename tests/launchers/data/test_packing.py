"""Packed records have the same losses and gradients as each alone, and none sees another.

F's flash kernel runs once for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from planning import Measurement, make_plan
from torch.profiler import profile

from llmexp.errors import ConfigError
from llmexp.launchers.data.packing import LENGTHS, model_inputs
from llmexp.launchers.data.sequences import IGNORED, Example, Sequences
from llmexp.launchers.models import building
from llmexp.launchers.models.weights import seeded
from llmexp.method import Method
from llmexp.schema import DenseModel, MixtralModel

CPU = torch.device("cpu")
SEQ_LEN = 48
LENGTHS_OF_ROWS = ((20, 7, 12), (30, 17))
SIZES = {"name": "t", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_layers": 2, "num_heads": 4} | {
    "num_kv_heads": 2,
    "head_dim": 8,
    "max_positions": 64,
}
kinds = pytest.mark.parametrize("architecture", ["llama", "qwen3", "mixtral"])
with_and_without_f = pytest.mark.parametrize("method", ["Naive", "F", "RS"])


def model(method: str, architecture: str = "llama", *, records: bool = True) -> torch.nn.Module:
    from llmexp.launchers.attention.choice import implementation  # transformers' parts that few files need

    experts = {"num_experts": 4, "experts_per_token": 2}
    sparse = architecture == "mixtral"
    shape = (
        MixtralModel(architecture=architecture, **SIZES, **experts)
        if sparse
        else DenseModel(architecture=architecture, **SIZES)
    )
    attention = implementation(Method.parse(method, "finetune").techniques, CPU, records=records)
    return building.build(building.configuration(shape), torch.float32, attention, device=CPU, weights=seeded(0))


def example(length: int, seed: int) -> Example:
    ids = torch.randint(64, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return Example(ids, [IGNORED] * (length // 3) + ids[length // 3 :])


ROWS = [
    [example(length, 10 * row + place) for place, length in enumerate(lengths)]
    for row, lengths in enumerate(LENGTHS_OF_ROWS)
]


def train(
    built: torch.nn.Module, rows: Sequence[Sequence[Example]], *, isolated: bool
) -> tuple[float, dict[str, torch.Tensor]]:
    """The sum of the losses of all learned tokens, and its gradients."""
    batch = Sequences.of_rows(rows, SEQ_LEN, isolated=isolated).micro_batch(0, len(rows), CPU)
    loss = built(**model_inputs(batch)).loss * int((batch.labels != IGNORED).sum())
    loss.backward()
    return loss.item(), {
        name: parameter.grad.clone() for name, parameter in built.named_parameters() if parameter.grad is not None
    }


@with_and_without_f
@kinds
def test_packed_losses_and_gradients_are_those_of_each_record_alone(method: str, architecture: str) -> None:
    packed, gradients = train(model(method, architecture), ROWS, isolated=True)
    alone = model(method, architecture, records=False)
    losses = [train(alone, [[one]], isolated=False) for row in ROWS for one in row]
    assert packed == pytest.approx(sum(loss for loss, _ in losses), rel=1e-5)
    together = losses[-1][1]  # gradients add up over the calls
    assert gradients.keys() == together.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, together[name], rtol=1e-5, atol=1e-4, msg=name)


@with_and_without_f
def test_another_record_in_the_row_changes_nothing(method: str) -> None:
    built = model(method)

    def logits(rows: Sequence[Sequence[Example]]) -> torch.Tensor:
        batch = Sequences.of_rows(rows, SEQ_LEN, isolated=True).micro_batch(0, len(rows), CPU)
        found: torch.Tensor = built(**model_inputs(batch)).logits
        return found

    first, other, last = ROWS[0]
    before, after = logits(ROWS), logits([[first, example(len(other.ids), 99), last], ROWS[1]])
    place = len(first.ids)
    assert not torch.equal(before[0, place : place + len(other.ids)], after[0, place : place + len(other.ids)])
    assert torch.equal(before[0, :place], after[0, :place])
    assert torch.equal(before[0, place + len(other.ids) :], after[0, place + len(other.ids) :])
    assert torch.equal(before[1], after[1])


def test_with_f_the_flash_kernel_runs_once_for_each_part_of_each_layer() -> None:
    built = model("F")
    batch = Sequences.of_rows(ROWS, SEQ_LEN, isolated=True).micro_batch(0, 2, CPU)
    assert batch.packing is not None
    with profile() as profiled:
        built(**model_inputs(batch))
    calls = [
        event.count
        for event in profiled.key_averages()
        if event.key == "aten::_scaled_dot_product_flash_attention_for_cpu"
    ]
    assert calls == [len(batch.packing.lengths) * 2]


def test_a_model_that_hands_no_bounds_on_is_refused() -> None:
    batch = Sequences.of_rows(ROWS, SEQ_LEN, isolated=True).micro_batch(0, 2, CPU)
    inputs = model_inputs(batch)
    inputs.pop(LENGTHS)
    with pytest.raises(ConfigError, match=r"data\.pack=true: .*llama.* does not pass on where records end"):
        model("F")(**inputs)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("method=L+C", "C compiles for one shape"),
        ("method=P", "P comes before a sequence"),
        ("parallelism.cp=2", "whole models, not cp=2"),
        ("engine=torch parallelism.pp=2 batch.accumulation=2", "whole models, not pp=2"),
        ("engine=megatron", "attention within records"),
    ],
)
def test_what_does_not_go_with_packing_is_skipped_with_a_reason(words: str, said: str) -> None:
    base = ("task=finetune", "data.pack=true", "hardware=cpu", "parallelism.dp=1", "precision=fp32", *words.split())
    assert said in str(make_plan(*base).skip or "")


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["deepspeed", "torch"])
def test_engines_train_packed_records_the_same_with_and_without_f(
    observe: Callable[..., Measurement], engine: str
) -> None:
    words = (
        "task=finetune",
        "data.pack=true",
        "hardware=cpu",
        "parallelism.dp=2",
        "batch.micro=2",
        "model.num_layers=2",
        "precision=fp32",
    )
    methods = ("L", "L+F+R", "Naive", "F+Z3")
    found = observe(
        {method: make_plan(*words, f"engine={engine}", "optimizer.lr=1e-3", f"method={method}") for method in methods}
    )
    for name, ranks in found.items():
        baseline = found["L" if "L" in name else "Naive"][0]["losses"]
        assert ranks[0]["losses"] == pytest.approx(baseline, abs=1e-5), name
        assert ranks[0]["losses"][-1] < ranks[0]["losses"][0] - 0.05
        assert bool([kernel for kernel in ranks[0]["operators"] if "flash_attention" in kernel]) == ("F" in name)
