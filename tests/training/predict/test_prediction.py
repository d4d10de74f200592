"""A run's predicted speed: what it follows, what it goes by, and what is not predicted."""

from __future__ import annotations

from statistics import median

import pytest

from llmexp.paper.printed import paper_cell
from llmexp.record.predicted import Prediction
from llmexp.training.predict import predict, unpredicted
from tests.planning import make_plan, make_plans, table03_methods

WORDS = ("model=7b", "hardware=a800", "precision=bf16_pure", "data.seq_len=350", "optimizer=adamw_cpuadam")


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
    assert four.parts_s["communication"] == pytest.approx(one.parts_s["communication"])


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
        ("mi300x", "its data sheet"),
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


def test_hardware_without_runs_of_its_own_has_a_wider_interval() -> None:
    known, unknown = predicted("method=F+Z3"), predicted("method=F+Z3", "hardware=a100")
    assert unknown.high / unknown.low > 1.5 * known.high / known.low
    offloaded = predicted("method=F+Z3+O", "hardware=a100")
    assert offloaded.high / offloaded.low > 1.5 * unknown.high / unknown.low


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("parallelism.tp=2", "engine=megatron"), "parallelism.tp is not predicted yet"),
        (("engine=megatron",), "engine=megatron is not predicted yet"),
        (("hardware.nodes=2",), "several nodes are not predicted yet"),
        (("model=mixtral",), "model=mixtral has experts"),
        (("method=RS",), "atom RS is not predicted yet"),
        (("batch.micro=max",), "batch.micro=max is not predicted: name a batch"),
        (("optimizer=lion",), "optimizer=lion is not predicted yet"),
        (("precision=fp32",), "precision=fp32 is not predicted yet"),
        (("kernels.liger=true",), "kernels.liger is not predicted yet"),
        (("memory.activation_offload=true", "engine=torch"), "memory.activation_offload is not predicted yet"),
        (("hardware=cpu",), "hardware=cpu is not predicted yet"),
        (
            ("hardware.memory_bandwidth_bytes_per_s=null", "hardware.interconnect_bandwidth_bytes_per_s=null"),
            "without hardware.memory_bandwidth_bytes_per_s and hardware.interconnect_bandwidth_bytes_per_s",
        ),
        (("hardware=v100",), "without hardware.peak_flops_per_s.bf16"),
    ],
)
def test_what_is_not_predicted_has_a_reason(words, reason: str) -> None:
    plan = make_plan("model=7b", "hardware=a800", "precision=bf16_pure", *words)
    assert unpredicted(plan) == reason
    assert predict(plan) is None


def test_other_tasks_are_not_predicted() -> None:
    plan = make_plan("task=serve", "model=7b", "hardware=a800", "serve.rate=[1]")
    assert plan.predicted is None


def test_a_plan_keeps_its_prediction_and_a_skip_has_none() -> None:
    plan = make_plan(*WORDS, "method=F")
    assert plan.predicted == predict(plan)
    assert plan.params["predicted_tokens_per_s"] == f"{plan.predicted.rate:.4g}"
    assert type(plan).model_validate_json(plan.model_dump_json()).predicted == plan.predicted
    assert make_plan(*WORDS, "method=F", "engine=torch", "method=Z2+O").predicted is None
