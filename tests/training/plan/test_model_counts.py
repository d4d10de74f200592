"""What a plan says of models that are not like Llama: counts by kinds of layers, or why there are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.inputs.architecture.reading import read_architecture
from llmexp.record.samples import StepSample
from llmexp.training import flops
from llmexp.training.describe import describe
from llmexp.training.plan.training_plan import TrainingPlan

GPT_OSS = {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "sliding_window": 100,
}
FULL_SEQUENCES = ("data=synthetic", "precision=bf16_mixed")
Planned = Callable[..., TrainingPlan]


@pytest.fixture
def planned(plan, tmp_path: Path) -> Planned:
    def of(*words: str, **changed: Any) -> TrainingPlan:
        (tmp_path / "config.json").write_text(json.dumps(GPT_OSS | changed))
        made: TrainingPlan = plan(
            "model=hf", f"model.path={tmp_path}", "data=synthetic", "precision=bf16_mixed", *words
        )
        return made

    return of


def test_fused_attention_of_windows_is_refused_where_they_are_shorter_than_sequences(planned):
    mistral = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "num_hidden_layers": 2}
    long, whole = (planned("method=F", f"data.seq_len={length}", **mistral) for length in (101, 100))
    assert "attends within 100 tokens: set data.seq_len=100 or less, or leave F out" in str(long.skip)
    assert "within 100" not in str(whole.skip)
    assert "within 100" not in str(planned("method=Naive", "data.seq_len=101", **mistral).skip)
    assert "within 100" not in str(planned("method=F", "data.seq_len=101", sliding_window=None, **mistral).skip)


def test_parameters_flops_and_state(planned):
    """State by hand: mixed precision has 2 bytes of weights and 12 of the optimizer's, partitioned by Z1."""
    made, counted = planned("method=Z1", "data.seq_len=256"), read_architecture(GPT_OSS)
    assert (made.parameters, made.trainable_parameters) == (counted.parameters, counted.parameters)
    assert made.active_parameters == counted.active_parameters
    assert made.flops_per_token == counted.flops_per_token(256)
    assert made.recomputed_flops_per_token == 0
    assert made.memory is not None
    assert made.memory.parameters.device == 2 * counted.parameters
    assert made.memory.optimizer.device == 12 * counted.parameters / 8
    told = describe(made)
    assert told["layers"] == "1 x sliding attention within 100, 2 of 6 experts; 1 x attention, 2 of 6 experts"
    assert told["flops"] == f"{made.flops_per_token:.4g} for a token, forward and backward"
    assert "activations" not in made.memory.arithmetic


def test_mfu_counts_these_flops(planned):
    """A step of 4 whole sequences; by PaLM's convention each query meets every key, whatever windows leave out."""
    made, counted = planned("data.seq_len=256"), read_architecture(GPT_OSS)
    assert made.flops is not None
    step = StepSample.model_construct(positions=1024, real_tokens=1024, record_squares=None)
    assert flops.model(step, made.flops) == pytest.approx(1024 * counted.flops_per_token(256))
    whole = 1024 * 3 * (counted.forward_flops_per_position + 256 * counted.flops_per_key)
    assert flops.full_attention(step, made.flops) == pytest.approx(whole)
    assert flops.computed(step, made.flops, None) is None


def test_z3_partitions_the_parameters_too(planned):
    made = planned("method=Z3")
    assert made.memory is not None
    assert made.memory.parameters.device == pytest.approx(2 * made.parameters / 8, abs=2)


@pytest.mark.parametrize(
    ("words", "what", "reason"),
    [
        (["method=L", "task=finetune"], "memory", "the method freezes or adds parameters"),
        (["engine=torch", "parallelism.pp=2", "batch.accumulation=2"], "memory", "pp 2 cuts the model"),
        (["optimizer=adafactor"], "memory", "the states of optimizer=adafactor are unknown"),
        (["data.seq_len=256", "data.seq_len_schedule=[128,256]"], "flops", "windows shorter than data.seq_len=256"),
    ],
)
def test_what_is_not_known_is_said(words, what, reason, planned):
    made = planned(*words)
    assert reason in made.uncounted[what]
    assert reason in describe(made)[what]
    assert getattr(made, what) is None
    assert made.parameters == read_architecture(GPT_OSS).parameters


def test_lengths_within_windows_may_differ(planned):
    """There attention grows with the squares that a run counts."""
    made = planned("data.seq_len=64", "data.seq_len_schedule=[32,64]")
    assert made.flops is not None
    assert made.flops.whole_per_square is None
    assert made.uncounted == {}


def test_recomputation_is_not_known(planned):
    assert planned("method=R").recomputed_flops_per_token is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model_type": "gpt2"}, "model_type=gpt2 is none of those whose layers llmexp knows"),
        ({"layer_types": ["full_attention", "new"]}, "layer_types has 'new'"),
        ({"model_type": "gemma3", "text_config": {}}, "model_type=gemma3 is built with its vision tower"),
    ],
)
def test_a_model_that_is_not_known_is_said(changed, reason, planned):
    made = planned(**changed)
    assert (made.parameters, made.memory, made.flops) == (None, None, None)
    assert reason in describe(made)["parameters"]
    assert reason in describe(made)["memory"]


def test_code_of_the_models_own_is_not_guessed(planned):
    own = {"auto_map": {"AutoModelForCausalLM": "mine.Model"}}
    assert planned(**own).parameters
    assert "auto_map" in planned("model.trust_remote_code=true", **own).uncounted["parameters"]


def test_models_like_llama_say_nothing_new(plan):
    made = plan("model=7b")
    assert (made.layers, made.uncounted, describe(made)["flops"]) == ("", {}, "")
