from __future__ import annotations

import pytest

from llmexp.record.digits import GIB

SIZE = 6_738_415_616


@pytest.mark.parametrize(
    ("words", "device_bytes_per_parameter", "host_bytes_per_parameter"),
    [
        (["precision=bf16_mixed"], 20, 0),
        (["precision=bf16_mixed", "optimizer=deepspeed_adamw"], 18, 0),
        (["precision=bf16_pure"], 8, 0),
        (["precision=fp32"], 16, 0),
        # Stage 1 takes its share of the gradients while all of them are there; then the share is flattened and copied.
        (["method=Z1"], 4 + (12 + 2) / 8, 0),
        (["method=Z1", "parallelism.dp=2"], 2 + (12 + 2 + 2 + 4) / 2, 0),
        (["method=Z1", "+engine.options.zero_optimization.overlap_comm=true"], 2 + (12 + 2 + 2 + 4) / 8, 0),
        (["method=Z2"], 2 + (12 + 2 + 2 + 4) / 8, 0),
        (["method=Z3"], 20 / 8, 0),
        (["method=Z3", "+engine.options.zero_optimization.sub_group_size=1_000"], 16 / 8, 0),
        # DeepSpeed's ZeRO keeps a second copy of the parameters, and flattens gradients of its dtype without a copy.
        (["method=Z2", "precision=bf16_pure"], 2 + (6 + 2 + 2) / 8, 0),
        (["method=Z2+O", "precision=bf16_pure"], 2, 8 / 8),
        (["method=Z3+O", "precision=bf16_pure"], 0, 12 / 8),
    ],
)
def test_bytes_a_parameter(words, device_bytes_per_parameter, host_bytes_per_parameter, plan):
    memory = plan("model=7b", *words).memory
    assert memory.device == pytest.approx(device_bytes_per_parameter * SIZE, rel=1e-6)
    assert memory.host == pytest.approx(host_bytes_per_parameter * SIZE, rel=1e-6)


def test_the_papers_naive_7b_fits_and_13b_does_not(plan):
    """66.7 GB of 80 GB were measured for 7B (table III); 13B has no Naive row."""
    small, large = (plan(f"model={name}", "precision=bf16_pure").memory for name in ("7b", "13b"))
    assert small.device < 66.7e9
    assert small.shortage(8, 80 * GIB, 512 * GIB) is None
    assert "needs at least 97.0 GiB on the device" in str(large.shortage(8, 80 * GIB, 512 * GIB))


def test_four_bits_freeze_the_matrices(plan):
    made = plan("model=7b", "method=Q", "precision=bf16_pure")
    assert made.trainable_parameters == 2 * 32000 * 4096 + (2 * 32 + 1) * 4096
    assert made.memory.device < 9.8e9  # what the paper measured, activations included


def test_fsdps_z2_is_sure_of_the_whole_parameters_that_it_gathers(plan):
    """Between backward and update a rank of 8 holds 12.55 GiB.

    At the end of forward it holds its parts, its moments and all parameters in bf16.
    """
    memory = plan("engine=torch", "model=7b", "method=Z2", "precision=bf16_mixed").memory
    assert memory.device / GIB == pytest.approx(21.97, abs=0.01)
    assert "at the end of forward" in memory.arithmetic
    assert "which has 16.0 GiB" in str(memory.shortage(8, 16 * GIB, 512 * GIB))
    in_backward = plan("engine=torch", "model=7b", "method=Z2", "precision=bf16_mixed", "parallelism.dp=1").memory
    assert in_backward.device == 16 * SIZE
    twice = plan("engine=torch", "model=7b", "method=Z2", "precision=bf16_mixed", "batch.accumulation=2").memory
    assert twice.device == (2 + 16 / 8) * SIZE


def test_on_a_cpu_rank_what_is_there_at_different_times_is_not_added_up(plan):
    memory = plan(
        "engine=torch", "model=7b", "method=Z2+O", "precision=bf16_mixed", "hardware=cpu", "parallelism.dp=8"
    ).memory
    assert (memory.device, memory.host) == (2 * SIZE, 16 / 8 * SIZE)
    assert memory.in_all == (2 + 12 / 8) * SIZE
    assert "needs at least 175.7 GiB of host memory" in str(memory.shortage(8, None, 16 * GIB))


def test_scales_of_four_bit_weights_stay_whole_on_the_device(plan):
    made = plan("task=finetune", "model=7b", "method=QL+Z3+O", "precision=bf16_pure")
    four_bit = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    others = SIZE - four_bit + made.trainable_parameters
    assert made.memory.parameters.device == pytest.approx((1 / 64 + 4 / (64 * 256)) * four_bit, rel=1e-6)
    assert made.memory.parameters.host == pytest.approx((four_bit / 2 + 2 * others) / 8, rel=1e-6)


def test_host_memory_is_shared_by_the_ranks_of_a_node(plan):
    memory = plan("model=13b", "method=Z3+O").memory
    assert memory.shortage(8, 80 * GIB, 512 * GIB) is None
    assert "8 ranks on a node" in str(memory.shortage(8, 80 * GIB, 128 * GIB))


def test_on_cpu_everything_is_host_memory(plan):
    memory = plan("model=13b", "method=F+R+Z3", "hardware=cpu").memory
    assert "249.9 GiB of host memory" in str(memory.shortage(2, None, 16 * GIB))


@pytest.mark.parametrize(
    ("words", "parameters"),
    [
        (["parallelism.tp=2"], (SIZE - 65 * 4096) / 2 + 65 * 4096),
        (["parallelism.pp=2"], (SIZE - 4096) / 2 + 4096),
        (
            ["parallelism.tp=2", "parallelism.pp=4"],
            (SIZE - 65 * 4096 - 2 * 32000 * 4096) / 8 + 16 * 4096 + 32000 * 4096 / 2 + 4096,
        ),
        (["parallelism.pp=2", "model.tie_embeddings=true"], (SIZE - 4096 - 2 * 32000 * 4096) / 2 + 32000 * 4096 + 4096),
    ],
)
def test_the_fullest_rank_of_a_model_that_is_cut(words, parameters, plan):
    """7B: 32 layers of two gains, a last gain, embeddings and head of 32000 x 4096.

    The last stage holds the head and the last gain.
    """
    memory = plan("engine=megatron", "model=7b", "precision=bf16_mixed", *words).memory
    assert memory.device == 20 * parameters
    assert "of 6." in memory.arithmetic


@pytest.mark.parametrize(
    ("words", "parameters"),
    [
        (["parallelism.virtual_stages=4"], (SIZE - 2 * 32000 * 4096 - 4096) / 8 + 32000 * 4096 + 4096),
        (
            ["parallelism.virtual_stages=2", "parallelism.schedule=zbv"],
            (SIZE - 2 * 32000 * 4096 - 4096) / 8 + 2 * 32000 * 4096 + 4096,
        ),
        (
            ["parallelism.virtual_stages=2", "parallelism.schedule=zbv", "model.tie_embeddings=true"],
            (SIZE - 2 * 32000 * 4096 - 4096) / 8 + 32000 * 4096 + 4096,
        ),
    ],
)
def test_in_a_v_the_first_rank_holds_embedding_and_head(words, parameters, plan):
    memory = plan(
        "engine=torch", "model=7b", "precision=bf16_mixed", "parallelism.pp=8", "batch.accumulation=8", *words
    ).memory
    assert memory.device == 18 * parameters


MIXTRAL, EXPERTS, ROUTERS = 46_702_792_704, 32 * 8 * 3 * 4096 * 14336, 32 * 8 * 4096


def test_a_family_with_experts_is_cut_as_a_shape_is(plan):
    """Qwen3-30B-A3B: of each layer attention is cut, the router, two norms and those of heads are whole."""
    words = ("parallelism.tp=2", "parallelism.etp=1", "parallelism.sequence=true", "parallelism.ep=4")
    memory = plan("engine=torch", "model=qwen3-30b-a3b", "precision=bf16_pure", "data.seq_len=64", *words).memory
    attention, router, experts = 2048 * 128 * (2 * 32 + 2 * 4), 2048 * 128, 128 * 3 * 2048 * 768
    layer = attention / 2 + router + 2 * 2048 + 2 * 128 + experts / 4
    assert memory.parameters.device == 2 * (48 * layer + 151936 * 2048 + 2048)


@pytest.mark.parametrize(
    ("words", "bytes_on_device"),
    [
        ([], 20 * MIXTRAL),
        (["parallelism.ep=8"], 20 * (MIXTRAL - EXPERTS + EXPERTS / 8)),
        # Each expert is on 2 of the 8 ranks, which share out its optimizer's states.
        (
            ["parallelism.ep=4", "method=Z1"],
            4 * (MIXTRAL - EXPERTS + EXPERTS / 4) + 16 * ((MIXTRAL - EXPERTS) / 8 + EXPERTS / 4 / 2),
        ),
        (
            [
                "parallelism.tp=2",
                "parallelism.ep=8",
                "parallelism.etp=1",
                "parallelism.sequence=true",
                "data.seq_len=64",
            ],
            20 * ((MIXTRAL - EXPERTS - ROUTERS - 65 * 4096) / 2 + ROUTERS + 65 * 4096 + EXPERTS / 8),
        ),
        (
            ["parallelism.tp=2", "parallelism.ep=4", "parallelism.sequence=true", "data.seq_len=64"],
            20 * ((MIXTRAL - EXPERTS - ROUTERS - 65 * 4096) / 2 + ROUTERS + 65 * 4096 + EXPERTS / 8),
        ),
    ],
)
def test_experts_are_shared_out_and_routers_whole(words, bytes_on_device, plan):
    memory = plan("engine=megatron", "model=mixtral", "precision=bf16_mixed", *words).memory
    assert memory.device == pytest.approx(bytes_on_device, rel=1e-9)
