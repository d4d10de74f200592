from __future__ import annotations

import pytest

SIZE = 6_738_415_616
# Rows and columns of 7B: 32 layers of four 4096 x 4096 and three 4096 x 11008 matrices, two 32000 x 4096,
# and 65 gains of 4096.
# Embedding, LM head and gains, which AdamW updates with two moments beside Muon's one.
OUTSIDE = 2 * 32000 * 4096 + 65 * 4096
# Sides over 10,000 have no preconditioner: neither those of MLPs nor the vocabulary.
SQUARES = (32 * (4 * 2 + 3) + 2) * 4096**2
NARROW = ("model.hidden_size=64", "model.num_heads=2", "model.num_kv_heads=1")
FACTORED = 32 * (4 * 2 * 4096 + 3 * (4096 + 11008)) + 2 * (32000 + 4096) + 65 * 4096


@pytest.mark.parametrize(
    ("words", "moments"),
    [
        (["optimizer=adamw"], 8),
        (["optimizer=adamw", "precision=bf16_pure"], 4),
        (["optimizer=adamw8bit"], 2 * (1 + 4 / 256)),
        (["optimizer=lion"], 4),
        (["optimizer=lion8bit"], 1 + 4 / 256),
        (["optimizer=muon"], 4 * (1 + OUTSIDE / SIZE)),
        (["optimizer=muon", "precision=bf16_pure"], 2 * (1 + OUTSIDE / SIZE)),
        (["optimizer=soap", "engine=torch"], 4 * (2 + 2 * SQUARES / SIZE)),
        (["optimizer=soap", "engine=torch", "precision=bf16_pure"], 2 * (2 + 2 * SQUARES / SIZE)),
        (["optimizer=soap", "engine=torch", "optimizer.options.max_precondition_dim=4095"], 8),
        (["optimizer=sgd"], 0),
        (["optimizer=sgd", "optimizer.options.momentum=0.9", "optimizer.moments=1"], 4),
        (["optimizer=adafactor"], 4 * FACTORED / SIZE),
        (["optimizer=adafactor", "precision=bf16_pure", "engine=torch"], 2 * FACTORED / SIZE),
        (["optimizer=adalomo", "precision=bf16_pure", "engine=torch"], 4 * FACTORED / SIZE),
    ],
)
def test_bytes_of_state_a_parameter(words, moments, plan):
    assert plan("model=7b", *words).optimizer_state_bytes_per_parameter == pytest.approx(moments, rel=1e-9)


@pytest.mark.parametrize(
    ("words", "small"),
    [
        # Gains; of narrower layers keys and values too, which have 32 x 64 elements.
        ([], 9 * 128),
        (["model.architecture=qwen3"], 9 * 128 + 8 * 32),
        ([*NARROW], 9 * 64 + 8 * 32 * 64),
        ([*NARROW, "kernels.fused_projections=true"], 9 * 64),
        # Routers too, of 4 experts.
        (["model=tiny-moe"], 9 * 128 + 4 * 4 * 128),
        (["model=tiny-moe", "model.num_kv_heads=1", "model.head_dim=16"], 9 * 128 + 4 * 4 * 128 + 8 * 16 * 128),
        (["engine=deepspeed", "method=Z2"], 0),
        (["engine=deepspeed"], 9 * 128),
    ],
)
def test_moments_of_small_tensors_are_in_fp32(words, small, plan):
    made = plan("hardware=cpu", "engine=torch", "model=tiny", "model.head_dim=32", "optimizer=adamw8bit", *words)
    eight_bits = 2 * (1 + 4 / 256)
    more = (8 - eight_bits) * small / made.trainable_parameters
    assert made.optimizer_state_bytes_per_parameter == pytest.approx(eight_bits + more, rel=1e-9)


def test_an_optimizer_that_tells_nothing_has_no_estimate(plan):
    made = plan("model=7b", "optimizer=sgd", "optimizer.moments=null")
    assert (made.optimizer_state_bytes_per_parameter, made.memory) == (None, None)


@pytest.mark.parametrize(
    ("words", "elements"),
    [
        (["method=L", "adapter.rank=8"], 32 * (7 * 2 * 8 + 4 * 2 * 4096 + 3 * (4096 + 11008))),
        (["method=P"], 20 + 4096),
    ],
)
def test_rows_and_columns_of_an_adapter(words, elements, plan):
    made = plan("task=finetune", "model=7b", "optimizer=adafactor", *words)
    assert made.optimizer_state_bytes_per_parameter == pytest.approx(4 * elements / made.trainable_parameters, rel=1e-9)


def test_preconditioners_of_an_adapter(plan):
    made = plan("task=finetune", "model=7b", "optimizer=soap", "engine=torch", "method=L", "adapter.rank=8")
    # Each of 14 matrices a layer has a side of 8; of the others all but three of 11008 have squares.
    squares = 32 * (14 * 8**2 + 11 * 4096**2)
    expected = 4 * (2 + 2 * squares / made.trainable_parameters)
    assert made.optimizer_state_bytes_per_parameter == pytest.approx(expected, rel=1e-9)


def test_all_matrices_of_an_adapter_have_one_moment(plan):
    assert plan("task=finetune", "model=7b", "optimizer=muon", "method=L").optimizer_state_bytes_per_parameter == 4


def test_what_is_taken_up_in_backward_is_not_held(plan):
    made = plan("model=7b", "optimizer=lomo", "precision=bf16_pure", "engine=torch")
    assert (made.memory.gradients.device, made.memory.device) == (0, 2 * SIZE)
