"""A run's predicted speed: what it follows, what it goes by, and what is not predicted."""

from __future__ import annotations

from statistics import median

import pytest

from llmexp.paper.printed import paper_cell
from llmexp.record.predicted import Prediction
from llmexp.training.predict import predict, unpredicted
from llmexp.training.predict.rates import constants
from llmexp.training.predict.work import work_of
from tests.planning import make_plan, make_plans, table03_methods

WORDS = ("model=7b", "hardware=a800", "precision=bf16_pure", "data.seq_len=350", "optimizer=adamw_cpuadam")

MEGATRON = ("model=7b", "hardware=a100", "engine=megatron", "precision=bf16_mixed", "method=F", "data.seq_len=2048")


def predicted(*words: str) -> Prediction:
    found = make_plan(*WORDS, *words).predicted
    assert found is not None
    return found


def test_the_papers_cells_that_the_constants_are_fitted_to_come_out() -> None:
    plans = make_plans(tuple(table03_methods()), *WORDS)
    cells = {method: paper_cell("7b", method, "a800", 1) for method in plans}
    speeds = {method: cell.tokens_per_s for method, cell in cells.items() if cell and cell.tokens_per_s}
    assert len(speeds) == 22
    off = {method: abs(plans[method].predicted.rate / speed - 1) for method, speed in speeds.items()}
    assert median(off.values()) < 0.06, off
    assert max(off.values()) < 0.25, off


@pytest.mark.parametrize(
    ("faster", "slower"),
    [
        (("method=F",), ("method=Naive",)),
        (("method=F",), ("method=F+R",)),
        (("method=Z2",), ("method=Z3",)),
        (("method=Z2",), ("method=Z2+O",)),
        (("method=F+C",), ("method=F",)),
        (("method=F", "hardware=h100"), ("method=F",)),
        (("method=F", "batch.micro=8"), ("method=F",)),
        (("method=F", "optimizer=adamw"), ("method=F",)),
        (("method=Z3", "batch.accumulation=1"), ("method=Z3", "hardware=rtx4090")),
    ],
)
def test_what_makes_a_run_faster_makes_its_prediction_faster(faster, slower) -> None:
    assert predicted(*faster).rate > predicted(*slower).rate


def test_a_step_of_more_passes_updates_once() -> None:
    one, four = predicted("method=F"), predicted("method=F", "batch.accumulation=4")
    assert four.parts_s["forward"] == pytest.approx(4 * one.parts_s["forward"])
    assert four.parts_s["update"] == pytest.approx(one.parts_s["update"])
    assert four.parts_s["communication"] == pytest.approx(one.parts_s["communication"], rel=0.1)


def test_passes_add_their_gradients_unless_products_do() -> None:
    alone = ("engine=torch", "method=F", "optimizer=adamw", "batch.micro=4", "hardware.devices_per_node=1")
    one, four = (predicted(*alone, f"batch.accumulation={passes}").parts_s["backward"] for passes in (1, 4))
    fused = predicted(*alone, "batch.accumulation=4", "kernels.fused_accumulation=true").parts_s["backward"]
    assert four > 1.01 * 4 * one
    assert fused == pytest.approx(4 * one)


def test_a_single_rank_communicates_nothing() -> None:
    for method in ("Naive", "Z2", "F+R"):
        alone = predicted(f"method={method}", "hardware.devices_per_node=1")
        assert alone.parts_s["communication"] == pytest.approx(0.0, abs=1e-9)
        assert predicted(f"method={method}").parts_s["communication"] > 0


def test_what_a_method_adds_is_a_part_of_its_own() -> None:
    assert predicted("method=F").parts_s["recomputation"] == 0.0
    assert predicted("method=F+R").parts_s["recomputation"] == pytest.approx(predicted("method=F").parts_s["forward"])
    assert predicted("method=Z2").parts_s["update on the host"] == 0.0
    assert predicted("method=Z2+O").most == "update on the host"
    assert predicted("method=Z3", "hardware=rtx4090").most == "communication"


def test_zero_shares_the_update_out() -> None:
    whole, shared = predicted("method=Naive").parts_s["update"], predicted("method=Z2").parts_s["update"]
    assert shared == pytest.approx(whole / 8)


def test_fused_attention_grows_with_the_square_of_the_length() -> None:
    long, short = (
        predicted("method=F", "data.seq_len=4000"),
        predicted("method=F", "data.seq_len=400", "batch.micro=10"),
    )
    assert long.parts_s["forward"] > 1.05 * short.parts_s["forward"]


@pytest.mark.parametrize(
    ("hardware", "source"),
    [
        ("a800", "runs on this hardware"),
        ("rtx3090_nvlink", "runs on this hardware"),
        ("h100", "measured kernels"),
        ("b200", "measured kernels"),
        ("llmcompass_latency", "its data sheet"),
    ],
)
def test_it_says_what_the_rates_go_by(hardware: str, source: str) -> None:
    found = predicted("method=F+Z3", f"hardware={hardware}")
    assert found.source == source
    assert found.low < found.rate < found.high
    assert found.held_out_runs >= 20


def test_fewer_cards_on_pcie_have_more_of_the_hosts_memory_each() -> None:
    def links(cards: int, hardware: str) -> float:
        found = predicted("method=Z3", f"hardware={hardware}", f"hardware.devices_per_node={cards}", "batch.micro=8")
        return found.parts_s["communication"]

    assert links(2, "rtx4090") < links(8, "rtx4090") / 10
    assert links(2, "a800") > links(8, "a800") / 3


def test_what_was_not_fitted_has_the_interval_of_runs_of_its_kind() -> None:
    behind = {
        words: (found.held_out_runs, round(found.holds[0], 2), round(found.holds[1], 2))
        for words in (
            (),
            ("hardware=a100",),
            ("hardware=a100", "hardware.nodes=2"),
            ("engine=megatron", "parallelism.tp=8", "optimizer=adamw"),
            ("engine=megatron", "model=mixtral", "optimizer=adamw"),
            ("hardware=l40s",),
            ("hardware=l40s", "method=Z2+O"),
        )
        if (found := predicted("method=F", *words))
    }
    assert len(set(behind.values())) == len(behind), behind
    assert all(low < 1 < high for _, low, high in behind.values())


def test_few_held_out_runs_have_the_ends_of_a_wider_group_too_and_tell_no_share(monkeypatch) -> None:
    words = ("engine=megatron", "model=mixtral", "optimizer=adamw", "hardware=h100", "force=true")
    intervals = constants()["intervals"]
    own, wider = [0.5, 1.2, 19], intervals["other hardware, without offload"]
    monkeypatch.setitem(intervals, "runs with experts", own)
    found = predicted("method=F", *words)
    assert found.held_out_runs == own[2]
    assert not found.tells_share
    assert found.holds == pytest.approx((min(own[0], wider[0]), max(own[1], wider[1])))


def test_hardware_without_runs_of_its_own_has_a_wider_interval() -> None:
    known, unknown = predicted("method=F+Z3"), predicted("method=F+Z3", "hardware=a100")
    assert unknown.high / unknown.low > 1.3 * known.high / known.low
    offloaded = predicted("method=F+Z3+O", "hardware=a100")
    assert offloaded.high / offloaded.low > 1.5 * unknown.high / unknown.low


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("hardware.nodes=2",), "without hardware.network_bandwidth_bytes_per_s"),
        (("batch.micro=max",), "batch.micro=max is not predicted: name a batch"),
        (("optimizer=lomo",), "optimizer=lomo updates within backward, which is not predicted"),
        (
            ("optimizer=sgd", "optimizer.target=torch.optim.LBFGS"),
            "what optimizer=sgd reads and writes is not known",
        ),
        (("optimizer=muon",), "the products of matrices in the update of optimizer=muon are not predicted"),
        (("data.seq_len_schedule=[64,128,256]",), "data.seq_len_schedule is not predicted"),
        (
            ("hardware=cpu", "sweep.outputs=nowhere"),
            "this processor is not measured yet: llmexp task=micro hardware=cpu micro.ranks=2",
        ),
        (("hardware=cpu", "optimizer=lion"), "on a processor optimizer=lion is not predicted"),
        (("hardware=cpu", "parallelism.dp=1", "parallelism.tp=2"), "on a processor parallelism.tp is not predicted"),
        (
            ("hardware.memory_bandwidth_bytes_per_s=null", "hardware.interconnect_bandwidth_bytes_per_s=null"),
            "without hardware.memory_bandwidth_bytes_per_s and hardware.interconnect_bandwidth_bytes_per_s",
        ),
        (
            ("memory.activation_offload=true", "engine=torch", "hardware.host_link_bandwidth_bytes_per_s=null"),
            "without hardware.host_link_bandwidth_bytes_per_s",
        ),
        (("hardware=v100",), "without hardware.peak_flops_per_s.bf16"),
    ],
)
def test_what_is_not_predicted_has_a_reason(words, reason: str) -> None:
    plan = make_plan("model=7b", "hardware=a800", "precision=bf16_pure", *words)
    assert unpredicted(plan) == reason
    assert predict(plan) is None


def cluster(*words: str) -> Prediction:
    found = make_plan(*MEGATRON, *words).predicted
    assert found is not None, words
    return found


def test_tensor_parallelism_cuts_products_and_adds_collectives() -> None:
    whole, cut = (cluster(f"parallelism.tp={tp}", "batch.micro=4") for tp in (1, 8))
    assert 1 / 8 < cut.parts_s["forward"] / whole.parts_s["forward"] < 1 / 4
    assert cut.parts_s["tensor parallelism"] > 0
    assert "tensor parallelism" not in whole.parts_s


def test_sequence_parallelism_cuts_what_tensor_parallelism_leaves_whole() -> None:
    plain, cut = (cluster("parallelism.tp=8", f"parallelism.sequence={on}") for on in ("false", "true"))
    assert 0.8 < cut.parts_s["forward"] / plain.parts_s["forward"] < 0.98
    # It sends as much in forward, and half more in backward, of which products hide a part.
    assert 1 <= cut.parts_s["tensor parallelism"] / plain.parts_s["tensor parallelism"] < 1.25


def test_tensor_parallelism_over_nodes_goes_at_the_networks_speed() -> None:
    inside, across = (
        cluster("parallelism.tp=16", "hardware.nodes=2", f"hardware.devices_per_node={devices}", "parallelism.dp=1")
        for devices in (16, 8)
    )
    assert across.parts_s["tensor parallelism"] > inside.parts_s["tensor parallelism"]


def test_nodes_are_counted_by_the_ranks_on_them() -> None:
    on = ("model=7b", "method=F+Z3", "hardware=h100", "precision=bf16_mixed", "hardware.devices_per_node=8")
    assert [work_of(make_plan(*on, f"hardware.nodes={nodes}")).node_doublings for nodes in (1, 2, 16)] == [0, 1, 4]


def test_a_pipeline_waits_less_the_more_passes_it_has() -> None:
    few, many = (cluster("parallelism.pp=8", f"batch.accumulation={passes}") for passes in (8, 64))
    waits = [one.parts_s["pipeline"] / (one.parts_s["forward"] + one.parts_s["backward"]) for one in (few, many)]
    # One of eight stages has the head, for which no other waits.
    head = 32000 * 4096 / (32000 * 4096 + 4 * 202_383_360)
    assert 7 / 8 * (1 - head) < waits[0] < 7 / 8
    assert waits[1] == pytest.approx(waits[0] / 8, rel=0.2)


def test_a_pipelines_stages_are_gathered_and_reduced_in_every_pass() -> None:
    words = ("model=7b", "engine=torch", "hardware=h100", "precision=bf16_mixed", "parallelism.pp=2")
    few, many, once = (
        work_of(make_plan(*words, f"method={method}", f"batch.accumulation={passes}"))
        for method, passes in (("F+Z3", 2), ("F+Z3", 8), ("F+Z1", 8))
    )
    stage = 16 * 202_383_360 + 4096 + 32000 * 4096
    ends = 4096 + 32000 * 4096
    assert once.gathered_bytes == pytest.approx(2 * stage * 3 / 4)
    for work, passes in ((few, 2), (many, 8)):
        # Twice in a pass, but for what is outside of layers.
        assert 2 * passes * work.gathered_bytes == pytest.approx(2 * (2 * passes * (stage - ends) + ends) * 3 / 4)
    z1, z2 = (make_plan(*words, f"method=F+{stage}", "batch.accumulation=8") for stage in ("Z1", "Z2"))
    assert [work_of(plan).reduced_before for plan in (z1, z2)] == [0, 7]
    assert z2.predicted.parts_s["communication"] > z1.predicted.parts_s["communication"]


def test_fsdp2_gathers_what_is_outside_of_layers_once_a_pass_and_deepspeed_twice() -> None:
    words = ("model=7b", "hardware=h100", "precision=bf16_mixed", "method=F+Z3", "batch.accumulation=8")
    layers, ends = 32 * 202_383_360, 4096 + 2 * 32000 * 4096
    for engine, gathers in (("torch", 1), ("deepspeed", 2)):
        work = work_of(make_plan(*words, f"engine={engine}"))
        assert 2 * work.gathered_bytes == pytest.approx(2 * (2 * layers + gathers * ends) * 7 / 8)


@pytest.mark.parametrize(("method", "of_ends"), [("F+Z3", 1 / 8), ("F+Z2", 1)])
def test_shared_experts_of_a_stage_are_gathered_over_the_ranks_that_have_the_same(method: str, of_ends: float) -> None:
    """Of 8 ranks 4 share a stage, of which 2 have the same experts."""
    words = ("model=mixtral", "engine=torch", "hardware=h100", "precision=bf16_mixed", "parallelism.pp=2")
    work = work_of(make_plan(*words, "parallelism.ep=2", f"method={method}", "batch.accumulation=4"))
    experts = 16 * 8 / 2 * 3 * 4096 * 14336
    layers = 16 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096 + 2 * 4096)
    ends = 4096 + 32000 * 4096
    assert work.gathered_bytes == pytest.approx(2 * (experts / 2 + (layers + of_ends * ends) * 3 / 4))
    assert work.reduced_bytes == pytest.approx(2 * (experts / 2 + (layers + ends) * 3 / 4))


def test_twice_as_many_nodes_for_the_same_batch_are_at_most_twice_as_fast() -> None:
    for method in ("F", "F+Z1"):
        words = (f"method={method}", "batch.micro=2")
        one = cluster(*words, "hardware.nodes=1", "batch.accumulation=4")
        two = cluster(*words, "hardware.nodes=2", "batch.accumulation=2")
        assert 1.5 * one.rate < two.rate <= 2 * one.rate


def test_a_slower_network_shows_where_it_is_used() -> None:
    words = ("method=F+Z3", "engine=deepspeed", "hardware=h100", "hardware.nodes=4")
    fast = predicted(*words)
    slow = predicted(*words, "hardware.network_bandwidth_bytes_per_s=1e9")
    assert slow.parts_s["communication"] > 5 * fast.parts_s["communication"]
    assert slow.parts_s["forward"] == fast.parts_s["forward"]


@pytest.mark.parametrize("kind", ["ring", "ulysses"])
def test_context_parallelism_cuts_sequences_and_sends_keys(kind: str) -> None:
    long = ("model.max_positions=32768", "data.seq_len=32768", "batch.micro=1")
    whole = cluster(*long, "parallelism.dp=1", "hardware.devices_per_node=1")
    cut = cluster(*long, "parallelism.cp=8", f"parallelism.cp_kind={kind}")
    assert cut.parts_s["forward"] == pytest.approx(whole.parts_s["forward"] / 8, rel=0.1)
    assert 0 < cut.parts_s["context parallelism"] < 0.2 * cut.parts_s["forward"]


def test_experts_cost_like_those_that_a_token_is_sent_to() -> None:
    sizes = ("model.hidden_size=4096", "model.num_layers=32", "batch.micro=8", "data.seq_len=4096")
    routed = cluster("model=mixtral", *sizes)
    plan = make_plan(*MEGATRON, "model=mixtral", *sizes)
    dense = cluster("model=7b", "model.intermediate_size=28672", "model.num_kv_heads=8", *sizes)
    active = make_plan(*MEGATRON, "model=7b", "model.intermediate_size=28672", "model.num_kv_heads=8", *sizes)
    assert plan.active_parameters == pytest.approx(active.parameters, rel=0.01)
    assert routed.parts_s["forward"] == pytest.approx(dense.parts_s["forward"], rel=0.15)
    assert routed.parts_s["forward"] > dense.parts_s["forward"]
    spread = cluster("model=mixtral", *sizes, "parallelism.ep=8")
    assert spread.parts_s["expert parallelism"] > 0
    assert "expert parallelism" not in routed.parts_s


def test_experts_of_a_family_travel_as_those_of_a_shape_do() -> None:
    """A rank that has an eighth of the experts sends it eight times the tokens, and gathers fewer weights."""
    words = ("model=qwen3-30b-a3b", "engine=torch", "method=F+R+Z3", "data.seq_len=4096", "parallelism.dp=8")
    alone, spread = (predicted(*words, f"parallelism.ep={ep}", "hardware=h100").parts_s for ep in (1, 8))
    assert spread["expert parallelism"] > 0
    assert "expert parallelism" not in alone
    assert spread["backward"] < 0.5 * alone["backward"], "products are larger"
    sent = 48 * 4096 * 8 * 2048 * 2 * 7 / 8  # layers, tokens, experts of each, elements, bytes, those of other ranks
    assert work_of(make_plan(*words, "parallelism.ep=8", "hardware=h100")).expert_bytes == pytest.approx(2 * sent)


OF_EXPERTS = {
    *("expert_flops", "expert_rows", "expert_narrow", "expert_bytes", "expert_calls", "moved_bytes"),
    *("tensor_bytes", "tensor_calls", "ring_bytes", "ulysses_bytes", "stage_bytes", "launched_layers", "reduced_bytes"),
}


@pytest.mark.parametrize(
    "words",
    [
        "parallelism.cp=2 parallelism.cp_kind=ring",
        "parallelism.cp=2 parallelism.cp_kind=ulysses",
        "parallelism.tp=2 parallelism.etp=1 parallelism.sequence=true",
        "parallelism.pp=2 batch.accumulation=4",
        "parallelism.tp=2 parallelism.etp=1 parallelism.sequence=true parallelism.cp=2 parallelism.cp_kind=ring",
    ],
)
def test_torch_and_megatron_move_the_same_tokens_of_experts_beside_other_degrees(words: str) -> None:
    common = ("model=mixtral", "hardware=h100", "precision=bf16_mixed", "method=F", "data.seq_len=4096")
    torch, megatron = (
        vars(work_of(make_plan(*common, "parallelism.ep=4", *words.split(), f"engine={engine}")))
        for engine in ("torch", "megatron")
    )
    assert {name: torch[name] for name in OF_EXPERTS} == {name: megatron[name] for name in OF_EXPERTS}
    assert torch["expert_bytes"] > 0


def test_whole_experts_get_the_tokens_that_each_rank_of_tp_has() -> None:
    """Of 4096 tokens, 2 experts of each and 4096 elements in 2 bytes, 3 of 4 ranks have other experts."""
    words = ("engine=torch", "model=mixtral", "hardware=h100", "precision=bf16_mixed", "method=F", "data.seq_len=4096")
    tp = ("parallelism.tp=2", "parallelism.etp=1", "parallelism.sequence=true")
    work, sent = work_of(make_plan(*words, *tp, "parallelism.ep=4")), 4096 / 2 * 2 * 4096 * 2
    assert work.expert_bytes == pytest.approx(2 * 32 * sent * 3 / 4)
    assert work.moved_bytes == pytest.approx(4 * 32 * sent)
    # Attention alone gathers and scatters; of each 2 ranks one sends half.
    assert work.tensor_bytes == pytest.approx(2 * 32 * 4096 * 4096 * 2 / 2)
    assert work.expert_rows == pytest.approx(4 * 2048 * 2 / 8)


@pytest.mark.parametrize("words", [(), ("parallelism.tp=8", "parallelism.sequence=true"), ("parallelism.pp=4",)])
def test_no_run_is_faster_than_the_peak(words) -> None:
    plan = make_plan(*MEGATRON, "batch.micro=64", "data.seq_len=4096", "batch.accumulation=64", *words)
    assert plan.predicted is not None
    assert plan.flops_per_token * plan.predicted.rate / plan.processes < 0.9 * plan.peak_flops_per_s


def test_wider_numbers_take_longer() -> None:
    words = ("model=1b", "hardware=h100", "hardware.devices_per_node=1", "batch.micro=8", "data.seq_len=1024")
    seconds = {
        name: 1 / make_plan(*words, f"precision={name}", "method=Naive").predicted.rate
        for name in ("bf16_pure", "bf16_mixed", "tf32", "fp32")
    }
    assert sorted(seconds, key=seconds.get) == list(seconds)
    assert seconds["fp32"] > 2.5 * seconds["bf16_pure"]


def test_the_update_moves_the_states_of_its_optimizer() -> None:
    words = ("engine=torch", "method=F", "hardware.devices_per_node=1", "precision=bf16_mixed")
    update = {
        name: predicted(*words, f"optimizer={name}").parts_s["update"]
        for name in ("sgd", "adamw8bit", "lion", "adamw", "adafactor")
    }
    assert list(update) == sorted(update, key=update.get)
    assert update["lion"] / update["sgd"] == pytest.approx((6 + 2 * 8) / (6 + 2 * 4))


def test_liger_fuses_what_is_elementwise() -> None:
    words = ("method=F", "batch.micro=8", "data.seq_len=2048")
    assert predicted(*words, "kernels.liger=true").parts_s["forward"] < predicted(*words).parts_s["forward"]


def test_the_kernel_of_attention_that_is_named_counts() -> None:
    words = ("hardware=h100", "method=F", "data.seq_len=2048")
    named = predicted(*words, "kernels.flash=fa2").parts_s["forward"]
    assert named > predicted(*words).parts_s["forward"]
    older = ("hardware=a100", "method=F", "data.seq_len=2048")
    assert predicted(*older, "kernels.flash=fa2").parts_s == predicted(*older).parts_s


def test_offloaded_activations_go_over_the_hosts_link_twice() -> None:
    words = ("engine=torch", "method=F", "memory.activation_offload=true", "batch.micro=8")
    seconds = predicted(*words).parts_s["activation offload"]
    faster = predicted(*words, "hardware.host_link_bandwidth_bytes_per_s=63e9").parts_s["activation offload"]
    assert seconds == pytest.approx(2 * faster)
    assert "activation offload" not in predicted("method=F").parts_s


def test_attention_that_runs_again_takes_its_time_in_backward() -> None:
    words = ("batch.micro=8", "data.seq_len=1024")
    again, once = predicted("method=RS", *words).parts_s, predicted("method=Naive", *words).parts_s
    assert again["backward"] > 1.1 * once["backward"]
    assert again["forward"] == once["forward"]


def test_a_plan_keeps_its_prediction_and_a_skip_has_none() -> None:
    plan = make_plan(*WORDS, "method=F")
    assert plan.predicted == predict(plan)
    assert plan.params["predicted_tokens_per_s"] == f"{plan.predicted.rate:.4g}"
    assert type(plan).model_validate_json(plan.model_dump_json()).predicted == plan.predicted
    assert make_plan(*WORDS, "method=F", "engine=torch", "method=Z2+O").predicted is None


def test_r_in_some_layers_lies_between_runs_that_were_fitted_and_joined_products_do_not() -> None:
    widths = {
        words: made.high / made.low
        for words in ("", "memory.recompute_layers=16", "kernels.fused_projections=true")
        for made in [predicted("method=F+R+Z3", "engine=torch", "batch.micro=4", *words.split())]
    }
    assert widths["memory.recompute_layers=16"] == pytest.approx(widths[""])
    assert widths["kernels.fused_projections=true"] > widths[""]
