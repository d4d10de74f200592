"""What if a number of the hardware file were another: the prediction follows it, and says that it has not been run."""

from __future__ import annotations

import pytest

from llmexp.registry import get_task, published_speed
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.changed import changed_numbers
from llmexp.training.predict.sensitivity import sensitivity, sensitivity_words
from tests.planning import make_plan

WORDS = ("model=7b", "precision=bf16_pure", "data.seq_len=350", "optimizer=adamw_cpuadam")
OFFLOADED = ("hardware=h100", "method=F", "engine=torch", "memory.activation_offload=true", "optimizer=adamw")
# With eight cards a node their network cards together are as fast as NVLink.
NODES = ("hardware=h100", "hardware.nodes=2", "hardware.devices_per_node=4", "method=Z3")


def planned(*words: str) -> TrainingPlan:
    found = make_plan(*WORDS, *words)
    assert found.predicted is not None, words
    return found


@pytest.mark.parametrize(
    ("words", "number", "values", "called"),
    [
        (("hardware=a800", "method=F"), "peak_flops_per_s.bf16", (312e12, 624e12), "peak"),
        (("hardware=a800", "method=F"), "memory_bandwidth_bytes_per_s", (2.039e12, 8e12), "memory bandwidth"),
        (("hardware=a800", "method=Z3"), "interconnect_bandwidth_bytes_per_s", (200e9, 400e9), "interconnect"),
        (("hardware=rtx4090", "method=Z3"), "interconnect_bandwidth_bytes_per_s", (31.5e9, 63e9), "interconnect"),
        # Its file is based on that of the card with NVLink.
        (("hardware=rtx3090", "method=F+Z3"), "peak_flops_per_s.bf16", (71e12, 142e12), "peak"),
        (("hardware=l40s", "method=Z3"), "interconnect_bandwidth_bytes_per_s", (31.5e9, 63e9), "interconnect"),
        (("hardware=h100", "method=Z3"), "interconnect_bandwidth_bytes_per_s", (450e9, 900e9), "interconnect"),
        (NODES, "network_bandwidth_bytes_per_s", (50e9, 100e9), "network"),
        (OFFLOADED, "host_link_bandwidth_bytes_per_s", (63e9, 126e9), "host link"),
    ],
)
def test_a_larger_number_is_faster_and_a_smaller_one_slower(words, number: str, values, called: str) -> None:
    now, more = values
    slower, same, faster = (planned(*words, f"hardware.{number}={value}") for value in (now / 2, now, more))
    assert slower.predicted.rate < same.predicted.rate < faster.predicted.rate
    assert same.predicted == planned(*words).predicted
    for other in (slower, faster):
        assert changed_numbers(other.config.hardware) == [called]
        assert other.predicted.source.endswith(f" with another {called}")
        assert not other.predicted.source.startswith("runs on this hardware")


def test_an_interconnect_that_others_do_not_use_changes_nothing() -> None:
    alone = ("hardware=a800", "method=F", "hardware.devices_per_node=1")
    assert (
        planned(*alone).predicted.rate
        == planned(*alone, "hardware.interconnect_bandwidth_bytes_per_s=400e9").predicted.rate
    )


def test_a_fitted_link_keeps_its_share_of_what_the_file_says() -> None:
    parts = [
        planned("hardware=a800", "method=Z3", f"hardware.interconnect_bandwidth_bytes_per_s={bandwidth}").predicted
        for bandwidth in ("200e9", "1e15")
    ]
    assert parts[1].parts_s["communication"] < parts[0].parts_s["communication"]
    assert parts[1].parts_s["forward"] == parts[0].parts_s["forward"]


def test_what_has_not_been_run_has_the_wider_interval_of_other_hardware() -> None:
    ran, other = (
        planned("hardware=a800", "method=Z3", *words) for words in ((), ("hardware.peak_flops_per_s.bf16=4e14",))
    )
    assert other.predicted.holds[1] / other.predicted.holds[0] > 1.3 * ran.predicted.holds[1] / ran.predicted.holds[0]


def test_the_papers_cells_are_not_of_a_machine_with_other_numbers() -> None:
    words = ("hardware=a800", "method=Z3")
    assert published_speed(planned(*words))
    assert published_speed(planned(*words, "hardware.memory_bandwidth_bytes_per_s=8e12")) is None


def test_memory_decides_whether_it_fits_and_nothing_else() -> None:
    words = ("hardware=rtx4090", "method=F+Z3")
    small, large = planned(*words, "hardware.memory_bytes=8589934592"), planned(*words)
    verdicts = [get_task("pretrain").fit(plan).verdict for plan in (small, large)]
    assert verdicts == ["no", "yes"]
    assert small.predicted == large.predicted


def test_a_machine_without_a_file_has_no_other_numbers() -> None:
    assert changed_numbers(planned("hardware=a100", "method=F", "hardware.name=mine").config.hardware) == []


def test_the_largest_gain_comes_first_and_is_what_a_plan_of_that_number_says() -> None:
    plan = planned("hardware=a800", "method=Z3")
    found = sensitivity(plan)
    gains = {one.number: one.gain for one in found}
    assert list(gains.values()) == sorted(gains.values(), reverse=True)
    faster = planned("hardware=a800", "method=Z3", "hardware.interconnect_bandwidth_bytes_per_s=250e9").predicted.rate
    assert gains["interconnect_bandwidth_bytes_per_s"] == pytest.approx(faster / plan.predicted.rate - 1)
    assert found[0].words == "interconnect"


def test_no_number_gains_more_than_itself_and_all_together_no_more_than_a_quarter() -> None:
    for words in (("hardware=a800", "method=F", "batch.micro=16"), ("hardware=rtx4090", "method=Z3"), NODES, OFFLOADED):
        gains = [one.gain for one in sensitivity(planned(*words))]
        assert all(0 <= gain <= 0.2501 for gain in gains), words
        assert 0 < sum(gains) < 0.26, words


def test_a_plan_says_which_limit_to_buy(llmexp) -> None:
    words = ("plan", "--verbose", *WORDS, "hardware=rtx4090", "method=Z3")
    assert "  what if    if a quarter larger: interconnect +25%\n" in llmexp(*words)[1]
    assert "what if" not in llmexp(*(word for word in words if word != "--verbose"))[1]


def test_a_processor_and_a_run_that_is_not_predicted_have_no_limit_to_buy() -> None:
    unknown = make_plan(*WORDS, "hardware=a800", "method=F", "batch.micro=max")
    on_cpu = make_plan("model=tiny", "hardware=cpu", "sweep.outputs=nowhere")
    assert [sensitivity_words(plan) for plan in (unknown, on_cpu)] == ["", ""]
