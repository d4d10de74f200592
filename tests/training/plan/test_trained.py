from __future__ import annotations

import pytest

from llmexp.inputs.shape import ModelShape
from llmexp.method import Method
from llmexp.schema import AdapterConfig
from llmexp.training.plan.trained import Trained, flops_per_token

LLAMA_7B = ModelShape(32000, 4096, 11008, 32, 32, 32, 128, tie_embeddings=False)


def trained(method: str, **adapter) -> Trained:
    task = "pretrain" if method == "Q" else "finetune"
    return Trained.of(LLAMA_7B, Method.parse(method, task).techniques, AdapterConfig(**adapter))


def test_lora_on_queries_and_values_of_llama_7b_is_what_its_authors_print():
    # 4,194,304 at rank 8 is what PEFT prints for Llama 7B with q_proj and v_proj.
    found = trained("L", rank=8, targets=("q_proj", "v_proj"))
    assert (found.trainable, found.frozen, found.four_bit) == (32 * 2 * 8 * (4096 + 4096), LLAMA_7B.parameters, 0)
    assert found.trainable == 4_194_304


def test_the_frozen_model_is_counted_once_in_the_bits_that_hold_it():
    for method in ("L", "QL", "P"):
        found = trained(method)
        assert found.frozen + found.four_bit == LLAMA_7B.parameters
    assert trained("QL").four_bit == LLAMA_7B.linear_parameters
    assert trained("QL").trainable == trained("L").trainable
    assert trained("P", virtual_tokens=10).trainable == 10 * 4096


def test_without_an_adapter_all_that_is_not_quantized_trains():
    assert trained("Naive") == Trained(LLAMA_7B.parameters)
    assert trained("Q") == Trained(
        LLAMA_7B.parameters - LLAMA_7B.linear_parameters, four_bit=LLAMA_7B.linear_parameters, matrices_train=False
    )


def test_frozen_matrices_cost_two_thirds_and_the_adapter_its_own():
    def flops(method: str) -> float:
        return flops_per_token(LLAMA_7B, 350, Method.parse(method, "finetune").techniques, AdapterConfig())

    multiplied = LLAMA_7B.linear_parameters + LLAMA_7B.head_parameters
    assert flops("Naive") - flops("P") == 2 * multiplied
    assert flops("L") - flops("P") == pytest.approx(6 * trained("L").trainable)
    assert flops("QL") == flops("L")
