from __future__ import annotations

import pytest

from llmexp.errors import ConfigError


def test_dp_fills_the_node(plan):
    dims = plan("parallelism.tp=2", "parallelism.pp=2").dims
    assert (dims.dp, dims.tp, dims.pp, dims.world_size) == (2, 2, 2, 8)


def test_batch_arithmetic(plan):
    batch = plan("parallelism.dp=3", "batch.micro=2", "batch.accumulation=5").batch
    assert (batch.micro, batch.accumulation, batch.global_) == (2, 5, 30)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["parallelism.tp=3"], "does not divide the 8 devices"),
        (["model=tiny", "parallelism.tp=8"], "parallelism.tp=8 does not divide model.num_heads=4: choices are 1, 2, 4"),
        (["model=tiny", "parallelism.pp=8"], "parallelism.pp=8 does not divide model.num_layers=4"),
        (
            ["model=tiny", "parallelism.pp=3", "hardware.devices_per_node=3"],
            "does not divide model.num_layers=4: choices are 1, 2, 4; with parallelism.ends_as_layers=both it is 6",
        ),
        (
            ["model=tiny", "parallelism.pp=2", "parallelism.ends_as_layers=head"],
            r"parallelism.pp=2 does not divide model.num_layers=4 \+ 1 \(ends_as_layers=head\)=5: choices are 1, 5",
        ),
        (
            ["model=tiny", "parallelism.pp=2", "parallelism.ends_as_layers=both", "parallelism.virtual_stages=2"],
            r"does not divide the 6 layers \(with its ends\) / pp 2=3: choices are 1, 3",
        ),
        (
            ["model=tiny", "model.num_layers=2", "parallelism.pp=4", "parallelism.ends_as_layers=both"],
            r"4 / pp 4 = 1 leaves a rank without a layer: set a smaller parallelism.pp",
        ),
        (["parallelism.ends_as_layers=both"], "is about the stages of a pipeline, and parallelism.pp=1: set"),
        (
            ["data=synthetic", "parallelism.cp=4"],
            "parallelism.cp=4 cuts data.seq_len=350 into 4 x 1 = 4 parts, which does not come out even: "
            "set data.seq_len=348",
        ),
        (
            ["data=synthetic", "parallelism.cp=4", "engine=megatron"],
            "into 4 x 2 = 8 parts, which does not come out even: set data.seq_len=344 or data.seq_len=352",
        ),
        (
            [
                "model=7b",
                "data=synthetic",
                "data.seq_len=364",
                "parallelism.cp=2",
                "parallelism.tp=4",
                "parallelism.sequence=true",
                "engine=megatron",
            ],
            "parallelism.cp=2 with parallelism.tp=4 and parallelism.sequence=true cuts data.seq_len=364 into 2 x 4 = "
            "8 parts",
        ),
        (
            [
                "model=qwen3-30b-a3b",
                "engine=torch",
                "data.seq_len=240",
                "parallelism.cp=3",
                "hardware.devices_per_node=3",
                "parallelism.cp_kind=ulysses",
            ],
            "ulysses shares out model.num_heads=32 and model.num_kv_heads=4 / tp 1 = 32 and 4 heads: choices are 1, 2",
        ),
        (
            ["model=tiny", "data.seq_len=256", "parallelism.cp=8"],
            "ulysses shares out model.num_heads=4 and model.num_kv_heads=2 / tp 1 = 4 and 2 heads: choices are 1, 2, 4",
        ),
        (
            [
                "model=tiny",
                "data.seq_len=256",
                "parallelism.cp=4",
                "parallelism.tp=2",
                "parallelism.cp_kind=ulysses",
                "engine=megatron",
            ],
            "model.num_kv_heads=2 / tp 2 = 2 and 1 heads: choices are 1, 2",
        ),
        (
            ["parallelism.cp_kind=ring"],
            "parallelism.cp_kind=ring belongs to a sequence cut over ranks, and parallelism.cp=1: set parallelism.cp",
        ),
        (["model=tiny", "parallelism.tp=4"], "parallelism.tp=4 does not divide model.num_kv_heads=2: choices are 1, 2"),
        (["parallelism.sequence=true"], "parallelism.tp=1: set parallelism.tp"),
        (
            ["engine=torch", "method=Z3", "parallelism.dp=4", "parallelism.shard=3"],
            "parallelism.shard=3 does not divide parallelism.dp=4: choices are 1, 2, 4",
        ),
        (
            ["model=7b", "data=synthetic", "parallelism.tp=4", "parallelism.sequence=true"],
            "cuts data.seq_len=350 into 1 x 4 = 4 parts, which does not come out even: "
            "set data.seq_len=348 or data.seq_len=352",
        ),
        (["parallelism.virtual_stages=2"], "parallelism.pp=1: set parallelism.pp"),
        (
            ["model=tiny", "parallelism.pp=2", "parallelism.virtual_stages=4"],
            "parallelism.virtual_stages=4 does not divide the 4 layers / pp 2=2: choices are 1, 2",
        ),
        (
            ["engine=megatron", "model=7b", "parallelism.pp=4", "parallelism.virtual_stages=2", "batch.accumulation=6"],
            "schedule=interleaved takes passes in groups of pp 4, not batch.accumulation=6: "
            "set batch.accumulation=4 or batch.accumulation=8",
        ),
        (
            ["parallelism.schedule=zbv"],
            "parallelism.schedule=zbv orders the passes of a pipeline, and parallelism.pp=1: set parallelism.pp",
        ),
        (
            ["parallelism.pp=2", "parallelism.schedule=zbv"],
            "schedule=zbv has 2 stages on a rank, and parallelism.virtual_stages=1: "
            "set parallelism.virtual_stages=2, or one of the schedules for 1: "
            "gpipe, 1f1b, zero_bubble",
        ),
        (
            ["parallelism.pp=2", "parallelism.schedule=1f1b", "parallelism.virtual_stages=2"],
            "schedule=1f1b has 1 stage on a rank, and parallelism.virtual_stages=2: "
            "set parallelism.virtual_stages=1, or one of the schedules "
            "for 2: interleaved, looped_bfs, zero_bubble, zbv, dualpipev",
        ),
        (
            ["engine=torch", "parallelism.pp=2"],
            r"schedule=1f1b takes no fewer passes than pp 2 x 1 = 2 stages, not batch.accumulation=1: "
            r"set batch.accumulation=2",
        ),
        (
            [
                "engine=torch",
                "parallelism.pp=2",
                "parallelism.virtual_stages=2",
                "parallelism.schedule=dualpipev",
                "batch.accumulation=3",
            ],
            "no fewer passes than pp 2 x 2 = 4 stages, not batch.accumulation=3: set batch.accumulation=4",
        ),
        (
            ["engine=torch", "parallelism.pp=2", "parallelism.schedule=zero_bubble", "batch.accumulation=7"],
            "takes passes in 7 // pp 2 = 3 rounds that come out even, not batch.accumulation=7: "
            "set batch.accumulation=6 or batch.accumulation=8",
        ),
        (
            ["model=7b", "parallelism.ep=2"],
            "parallelism.ep=2 shares out experts, and model=7b has none: set parallelism.ep=1",
        ),
        (
            ["model=mixtral", "parallelism.ep=3"],
            "parallelism.ep=3 does not divide model.num_experts=8: choices are 1, 2, 4, 8",
        ),
        (
            ["model=mixtral", "parallelism.dp=6", "parallelism.ep=4"],
            "over the ranks of dp 6 x cp 1 = 6, which it does not divide: set parallelism.ep=2 or parallelism.dp=8",
        ),
        (
            ["model=mixtral", "parallelism.tp=2", "parallelism.ep=8"],
            "dp 4 x cp 1 = 4, which it does not divide: set parallelism.ep=4 or parallelism.dp=8 or parallelism.etp=1",
        ),
        (
            ["model=mixtral", "parallelism.dp=2", "parallelism.tp=2", "parallelism.etp=1", "parallelism.ep=8"],
            "dp 2 x cp 1 x tp 2 / etp 1 = 4, which it does not divide: set parallelism.ep=4 or parallelism.dp=4",
        ),
        (["model=mixtral", "parallelism.tp=4", "parallelism.etp=3"], "does not divide parallelism.tp=4, .* 1, 2, 4"),
        (["model=7b", "parallelism.tp=2", "parallelism.etp=1"], "etp=1 cuts experts, and model=7b has none"),
    ],
)
def test_degrees_that_cannot_be_are_refused_with_the_arithmetic(words, message, plan):
    with pytest.raises(ConfigError, match=message):
        plan(*words)


def test_experts_are_shared_out_over_ranks_of_tp_that_do_not_cut_them(plan):
    words = ["model=mixtral", "engine=megatron", "parallelism.tp=2", "parallelism.sequence=true", "data.seq_len=64"]
    whole = plan(*words, "parallelism.etp=1", "parallelism.ep=8").dims
    assert (whole.dp, whole.expert_tensor, whole.same_experts, whole.layout) == (4, 1, 1, "tp 2 ep 8 etp 1 sequence")
    cut = plan(*words, "parallelism.etp=2", "parallelism.ep=4").dims
    assert (cut.etp, cut.expert_tensor, cut.same_experts) == (None, 2, 1)


def test_ends_that_count_as_layers_leave_the_first_and_last_rank_fewer(plan):
    words = [
        "model=tiny",
        "engine=megatron",
        "model.num_layers=6",
        "parallelism.pp=4",
        "parallelism.ends_as_layers=both",
    ]
    made = plan(*words)
    assert made.dims.rank_part.stage_layers(6) == (1, 2, 1)
    assert made.layout == "pp 4 both as layers 1f1b"
    assert made.skip is None


def test_more_ranks_than_devices_are_a_skip_so_that_the_rest_of_a_sweep_is_measured(plan):
    skip = plan("parallelism.dp=8", "parallelism.tp=2").skip
    assert (skip.code, "16 ranks, but hardware=a800 has 8 devices a node" in skip.reason) == ("ranks", True)
    assert plan("parallelism.dp=8", "parallelism.tp=2", "hardware.nodes=2", "engine=megatron").skip is None
    assert plan("parallelism.dp=9", "hardware=cpu").skip is None, "processes share cores"


def test_replicas_are_blocks_of_neighboring_ranks_in_every_pipeline_stage(plan):
    dims = plan("parallelism.dp=2", "parallelism.tp=2", "parallelism.pp=2").dims
    assert [dims.replica_of(rank) for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert [plan("parallelism.dp=8").dims.replica_of(rank) for rank in range(8)] == list(range(8))


@pytest.mark.parametrize(
    ("words", "schedule"),
    [
        ([], None),
        (["parallelism.pp=2"], "1f1b"),
        (["parallelism.pp=2", "parallelism.virtual_stages=2"], "interleaved"),
        (["parallelism.pp=2", "parallelism.virtual_stages=2", "parallelism.schedule=looped_bfs"], "looped_bfs"),
    ],
)
def test_a_pipeline_has_a_schedule_also_unasked(words, schedule, plan):
    assert plan(*words).dims.schedule == schedule


def test_degrees_that_can_be(plan):
    words = (
        "parallelism.tp=2",
        "parallelism.sequence=true",
        "parallelism.pp=2",
        "parallelism.virtual_stages=2",
        "batch.accumulation=4",
    )
    dims = plan("data=synthetic", *words).dims
    assert (dims.sequence, dims.virtual_stages, dims.arithmetic) == (True, 2, "dp 2 x tp 2 x pp 2 x cp 1 = 8 ranks")


def test_sequences_are_cut_in_the_engines_own_way_unless_another_is_asked_for(plan):
    words = ("data=synthetic", "data.seq_len=352", "parallelism.cp=2", "parallelism.tp=2")
    chosen = {engine: plan(*words, f"engine={engine}").dims.cp_kind for engine in ("megatron", "deepspeed", "torch")}
    assert chosen == {"megatron": "ring", "deepspeed": "ulysses", "torch": "ring"}
    dims = plan(*words, "engine=megatron", "parallelism.cp_kind=ulysses").dims
    assert (dims.cp_kind, dims.arithmetic) == ("ulysses", "dp 2 x tp 2 x pp 1 x cp 2 (ulysses) = 8 ranks")
    assert [dims.replica_of(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert plan("parallelism.dp=8", "engine=megatron").dims.cp_kind is None
