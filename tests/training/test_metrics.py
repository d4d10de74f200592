import json
import math
import re
from dataclasses import replace

import pytest

from llmexp.errors import RecordError
from llmexp.record.flops import Computed, Flops
from llmexp.record.samples import Energy, StateBytes
from llmexp.training.metrics import METRICS
from llmexp.training.repeats import RunConstants, read_training
from llmexp.training.task import PRETRAIN

# Two replicas of unequal speed; micro 2, accumulation 3, seq_len 10: 60 positions a rank and step,
# of which padding takes some.
FAST = [(9.0, 60, 50, 8.0), (1.0, 60, 45, 4.0), (2.0, 60, 55, 3.0)]
SLOW = [(9.0, 60, 60, 9.0), (2.0, 60, 60, 6.0), (3.0, 60, 40, 5.0)]
# Sequences of 10: 3e12 FLOPs a token, of which causal attention is a third; the devices compute as much of matrices,
# and both halves.
FLOPS = Flops(
    per_position=2e12,
    attention_per_square=1e11,
    seq_len=10,
    computed=Computed(per_position=2e12, fused_per_square=1e11, unfused_per_square=2e11, fused=False),
)


def measure(folders, facts):
    return METRICS.measure([read_training(folder, facts.world_size) for folder in folders], facts)


@pytest.fixture
def two_replicas(write_repeat):
    ranks = {0: {"window_wall_s": 3.5}, 1: {"window_wall_s": 6.0, "time_to_first_step_s": 7.0}}
    return write_repeat(0, ranks, {0: FAST, 1: SLOW})


@pytest.fixture
def two_full_replicas(write_repeat):
    """The same without padding."""
    ranks = {0: {"window_wall_s": 3.5}, 1: {"window_wall_s": 6.0}}
    full = {rank: [(time_s, 60, 60, loss) for time_s, _, _, loss in steps] for rank, steps in enumerate((FAST, SLOW))}
    return write_repeat(0, ranks, full)


def test_positions_of_all_replicas_are_divided_by_the_slowest_ranks_wall_time(two_replicas):
    metrics = measure([two_replicas], RunConstants(world_size=2, dp=2))
    # 2 ranks x 2 measured steps x 60 positions / 6 s; the warm-up step counts neither above nor below the line.
    assert metrics["tokens_per_s"].mean == pytest.approx(240 / 6)
    assert metrics["tokens_per_s_per_gpu"].mean == pytest.approx(20)
    # Padding left out: 45 + 60 + 55 + 40.
    assert metrics["real_tokens_per_s"].mean == pytest.approx(200 / 6)


def test_ranks_of_one_replica_count_once(two_replicas):
    metrics = measure([two_replicas], RunConstants(world_size=2, dp=1))
    assert metrics["tokens_per_s"].mean == pytest.approx(120 / 6)
    assert metrics["tokens_per_s_per_gpu"].mean == pytest.approx(10)


def test_a_step_takes_as_long_as_its_slowest_rank(two_replicas):
    metrics = measure([two_replicas], RunConstants(world_size=2, dp=2))
    # Slowest durations 2 and 3; rates of the steps 120/2 and 120/3.
    assert metrics["step_time_s"].mean == pytest.approx(2.5)
    assert metrics["step_time_s"].std_within_run == pytest.approx(0.5**0.5)
    assert metrics["tokens_per_s"].std_within_run == pytest.approx(200**0.5)
    assert metrics["forward_time_s"].mean == pytest.approx(2.5 / 4)
    assert metrics["backward_time_s"].mean == pytest.approx(2.5 / 2)
    assert metrics["optimizer_time_s"].mean == pytest.approx(2.5 / 8)
    assert metrics["time_to_first_step_s"].mean == 7.0


def test_time_inside_steps_is_reconciled_with_the_wall_time_of_the_rank_that_lost_most(two_replicas):
    metrics = measure([two_replicas], RunConstants(world_size=2, dp=2))
    # Rank 0: 1 + 2 s of 3.5; rank 1: 2 + 3 s of 6. Two steps each.
    assert metrics["timed_share_of_wall"].mean == pytest.approx(5 / 6)
    assert metrics["measured_steps"].mean == 2


@pytest.mark.parametrize(("wall_s", "share"), [(3.0, 1), (2.98, 3 / 2.98)])
def test_clocks_may_differ_by_less_than_a_percent(write_repeat, wall_s, share):
    folder = write_repeat(0, {0: {"window_wall_s": wall_s}}, {0: FAST})
    assert measure([folder], RunConstants(world_size=1, dp=1))["timed_share_of_wall"].mean == pytest.approx(share)


def test_more_time_in_steps_than_passed_is_an_error_with_its_figures(write_repeat):
    folder = write_repeat(0, {0: {"window_wall_s": 3.5}, 1: {"window_wall_s": 4.9}}, {0: FAST, 1: SLOW})
    with pytest.raises(
        RecordError,
        match=r"steps of 5 s in a window of 4\.9 s are impossible: rank 1's device clock, or the host's, is wrong",
    ):
        measure([folder], RunConstants(world_size=2, dp=2))


def test_repeats_that_stopped_at_different_steps_stand_side_by_side(write_repeat):
    folders = [
        write_repeat(k, {0: {"window_wall_s": 1.0 * count}}, {0: [(1.0, 10, 10, 1.0)] * (count + 1)})
        for k, count in enumerate((2, 4))
    ]
    metrics = measure(folders, RunConstants(world_size=1, dp=1))
    assert (metrics["measured_steps"].mean, metrics["measured_steps"].std_between_repeats) == (3, pytest.approx(2**0.5))
    assert (metrics["tokens_per_s"].mean, metrics["tokens_per_s"].std_within_run) == (10, 0)


def test_losses_are_means_over_ranks(two_replicas):
    metrics = measure([two_replicas], RunConstants(world_size=2, dp=2))
    assert metrics["first_loss"].mean == pytest.approx(8.5)
    assert metrics["final_loss"].mean == pytest.approx(4.0)


def test_deviations_between_repeats_and_within_a_run_stay_apart(write_repeat):
    steady = [
        write_repeat(k, {0: {"window_wall_s": wall}}, {0: [(1.0, 10, 10, 1.0)] + [(wall / 2, 10, 10, 1.0)] * 2})
        for k, wall in enumerate((2, 4))
    ]
    rate = measure(steady, RunConstants(world_size=1, dp=1))["tokens_per_s"]
    # 20 positions in 2 s and in 4 s: no step differs from the others of its run.
    assert rate.mean == pytest.approx(7.5)
    assert rate.std_between_repeats == pytest.approx(12.5**0.5)
    assert rate.std_within_run == 0
    assert rate.n == 2


def test_one_repeat_of_one_step_has_no_deviation(write_repeat):
    folder = write_repeat(0, {0: {}}, {0: [(1.0, 10, 10, 1.0)]}, warmup=0)
    rate = measure([folder], RunConstants(world_size=1, dp=1))["tokens_per_s"]
    assert rate.std_between_repeats is None
    assert rate.std_within_run is None


def test_flops_mfu_and_cost(two_full_replicas):
    facts = RunConstants(2, 2, flops=FLOPS, peak_flops_per_s=240e12, price_per_device_hour_usd=1.8)
    metrics = measure([two_full_replicas], facts)
    # 20 tokens/s per device x 3e12 FLOPs = 60 TFLOP/s of 240, 80 with what is masked.
    # 2 devices x 1.8 USD / 3600 s / 40 tokens/s = 25 USD per million tokens.
    assert metrics["tflops_per_s_per_gpu"].mean == pytest.approx(60)
    assert metrics["mfu"].mean == pytest.approx(0.25)
    assert metrics["hfu"].mean == pytest.approx(0.25 * 4 / 3)
    assert metrics["mfu_full_attention"].mean == pytest.approx(0.25 * 4 / 3)
    assert metrics["useful_mfu"] == metrics["mfu"]
    assert metrics["usd_per_million_tokens"].mean == pytest.approx(25)
    assert metrics["tokens_per_usd"].mean == pytest.approx(40_000)


def test_fp8_counts_for_the_time_that_it_takes_at_its_own_peak(two_full_replicas):
    fp8 = FLOPS.per_position / 2
    made = FLOPS.computed.model_copy(update={"fp8_per_position": fp8})
    half = FLOPS.model_copy(update={"fp8_per_position": fp8, "computed": made})
    facts = RunConstants(2, 2, flops=half, peak_flops_per_s=240e12, fp8_peak_flops_per_s=480e12)
    metrics = measure([two_full_replicas], facts)
    # 20 tokens/s take this long at the peaks, in a second; half of what is in fp8 is no longer there.
    saved = 20 * fp8 / 2 / 240e12
    assert metrics["tflops_per_s_per_gpu"].mean == pytest.approx(60)
    assert metrics["mfu"].mean == pytest.approx(0.25 - saved)
    assert metrics["hfu"].mean == pytest.approx(0.25 * 4 / 3 - saved)
    without = measure([two_full_replicas], replace(facts, fp8_peak_flops_per_s=None))
    assert (without["mfu"], without["hfu"]) == (None, None)


def test_flops_of_ranks_of_one_replica_count_once(two_full_replicas):
    metrics = measure([two_full_replicas], RunConstants(2, 1, flops=FLOPS, peak_flops_per_s=240e12))
    assert metrics["mfu"].mean == pytest.approx(0.125)
    assert metrics["mfu"].std_within_run / metrics["mfu"].mean == pytest.approx(200**0.5 / 40)


def test_a_program_has_neither_useful_mfu_nor_hfu(write_repeat):
    folder = write_repeat(0, {0: {"what_ran": {"program": "train.py"}}}, {0: [(1.0, 60, 60, 1.0)] * 2})
    metrics = measure(
        [folder], RunConstants(1, 1, flops=FLOPS.model_copy(update={"computed": None}), peak_flops_per_s=240e12)
    )
    assert (metrics["useful_mfu"], metrics["hfu"]) == (None, None)
    assert metrics["mfu"].mean == pytest.approx(60 * 3 / 240)
    assert metrics["mfu_full_attention"].mean == pytest.approx(60 * 4 / 240)


def test_an_epoch_takes_as_long_as_its_records_at_the_rate_of_both_replicas(write_repeat):
    steps = [(1.0, 10, 8, 4, 1.0)] * 3  # the first to warm up; 4 records a step and rank, 16 in a window of 2 s
    folder = write_repeat(
        0,
        {rank: {"window_wall_s": 2.0, "what_ran": {"data_records": 800}} for rank in (0, 1)},
        dict.fromkeys((0, 1), steps),
    )
    metrics = measure([folder], RunConstants(world_size=2, dp=2, price_per_device_hour_usd=1.8))
    assert metrics["samples_per_s"].mean == 8
    assert metrics["epoch_time_s"].mean == 100
    assert metrics["epoch_usd"].mean == pytest.approx(100 * 2 * 1.8 / 3600)


def test_without_records_there_is_no_epoch(two_replicas):
    metrics = measure([two_replicas], RunConstants(world_size=2, dp=2))
    assert (metrics["samples_per_s"], metrics["epoch_time_s"], metrics["epoch_usd"]) == (None, None, None)


def test_unknown_peak_shape_or_price_means_no_figure(two_full_replicas):
    metrics = measure([two_full_replicas], RunConstants(world_size=2, dp=2, flops=FLOPS))
    assert metrics["tflops_per_s_per_gpu"].mean == pytest.approx(60)
    assert metrics["mfu"] is None
    assert metrics["usd_per_million_tokens"] is None
    assert metrics["tokens_per_usd"] is None
    assert measure([two_full_replicas], RunConstants(world_size=2, dp=2, peak_flops_per_s=1e12))["mfu"] is None


def energy(seconds, **joules):
    return {"energy": Energy(seconds=seconds, joules=joules)}


def test_tokens_per_joule_are_those_of_all_that_draws_power(write_repeat):
    ranks = {0: {"window_wall_s": 25.0} | energy(25.0, p0=1000.0, p1=1500.0), 1: {"window_wall_s": 25.0} | energy(25.5)}
    folder = write_repeat(0, ranks, {rank: [(1.0, 60, 60, 1.0)] + [(12.5, 500, 500, 1.0)] * 2 for rank in (0, 1)})
    metrics = measure([folder], RunConstants(world_size=2, dp=2))
    # Rank 0 reads both packages of the node, 40 + 60 W, for 80 tokens/s.
    assert metrics["mean_power_w"].mean == pytest.approx(100)
    assert metrics["tokens_per_joule"].mean == pytest.approx(0.8)


@pytest.mark.parametrize(
    "second",
    [{}, energy(19.9, board=2000.0), energy(25.0, board=0.0)],
    ids=["a rank cannot read it", "too short", "a counter stood still"],
)
def test_energy_that_is_not_known_well_is_none(write_repeat, second):
    folder = write_repeat(
        0, {0: energy(25.0, board=2500.0), 1: second}, {rank: [(1.0, 60, 60, 1.0)] * 2 for rank in (0, 1)}
    )
    metrics = measure([folder], RunConstants(world_size=2, dp=2))
    assert (metrics["mean_power_w"], metrics["tokens_per_joule"]) == (None, None)


def test_mfu_above_one_is_an_error_with_its_figures(two_full_replicas):
    with pytest.raises(
        RecordError,
        match=re.escape("MFU of 1.25 is impossible: 20 tokens/s per device x 3e+12 FLOPs a token = 60 TFLOP/s"),
    ):
        measure([two_full_replicas], RunConstants(world_size=2, dp=2, flops=FLOPS, peak_flops_per_s=48e12))


def test_hfu_above_one_is_an_error_and_full_attention_is_not(two_full_replicas):
    """Causal kernels leave half of what PaLM's convention counts out.

    What the devices computed they cannot have done beyond their peak.
    """
    facts = RunConstants(world_size=2, dp=2, flops=FLOPS, peak_flops_per_s=64e12)
    with pytest.raises(
        RecordError,
        match=re.escape("HFU of 1.25 is impossible: 20 tokens/s per device x 4e+12 FLOPs a token = 80 TFLOP/s"),
    ):
        measure([two_full_replicas], facts)
    modest = Computed(per_position=2e12, fused_per_square=1e11, unfused_per_square=1e11, fused=True)
    metrics = measure(
        [two_full_replicas],
        RunConstants(2, 2, flops=FLOPS.model_copy(update={"computed": modest}), peak_flops_per_s=64e12),
    )
    assert metrics["mfu_full_attention"].mean == pytest.approx(1.25)


def test_memory_is_the_largest_ranks(write_repeat):
    ranks = {
        0: {"peak_allocated_bytes": 100, "peak_reserved_bytes": 150, "peak_device_used_bytes": 170},
        1: {
            "peak_allocated_bytes": 120,
            "peak_reserved_bytes": 130,
            "peak_device_used_bytes": 160,
            "peak_rss_bytes": 900,
        },
    }
    ranks[0]["phase_peak_bytes"] = {"forward": 90, "backward": 100}
    ranks[1]["phase_peak_bytes"] = {"forward": 120, "backward": 80, "optimizer": 70}
    ranks[1]["state_bytes"] = {
        "parameters": StateBytes(device=50),
        "gradients": StateBytes(device=5),
        "optimizer": StateBytes(host=70),
    }
    steps = [(1.0, 10, 10, 1.0)] * 2
    metrics = measure([write_repeat(0, ranks, {0: steps, 1: steps})], RunConstants(world_size=2, dp=2))
    means = {name: metric.mean for name, metric in metrics.items() if metric and name.endswith("bytes")}
    assert means == {
        "peak_allocated_bytes": 120,
        "peak_allocated_rank0_bytes": 100,
        "peak_reserved_bytes": 150,
        "peak_device_used_bytes": 170,
        "peak_rss_bytes": 900,
        "forward_peak_bytes": 120,
        "backward_peak_bytes": 100,
        "parameter_bytes": 50,
        "parameter_host_bytes": 0,
        "gradient_bytes": 20,
        "gradient_host_bytes": 0,
        "optimizer_bytes": 0,
        "optimizer_host_bytes": 80,
        # One rank's sum, not the sum of each kind's largest: 40 + 20 against 50 + 5.
        "training_state_bytes": 60,
        "training_state_host_bytes": 80,
    }


def test_states_in_files_are_told_beside_the_buffers_that_they_pass_through(write_repeat):
    held = {
        "gradients": StateBytes(host=7, disk=30),
        "optimizer": StateBytes(disk=50),
        "moments": StateBytes(disk=40),
        "swap_buffers": StateBytes(host=9),
    }
    repeat = write_repeat(0, {0: {"state_bytes": held, "trainable_parameters": 5}}, {0: [(1.0, 10, 10, 1.0)] * 2})
    metrics = measure([repeat], RunConstants(world_size=1, dp=1))
    wanted = {
        "gradient_host_bytes": 7,
        "gradient_disk_bytes": 30,
        "optimizer_disk_bytes": 50,
        "swap_buffer_bytes": 9,
        "optimizer_state_bytes_per_parameter": 8,
    }
    assert {name: metrics[name].mean for name in wanted} == wanted


def test_parameters_that_are_gathered_count_with_the_gradients_that_are_there_then(write_repeat):
    together = {"gathered": StateBytes(device=90), "gradients_and_gathered": StateBytes(device=95, host=7)}
    held = {
        "parameters": StateBytes(device=50),
        "gradients": StateBytes(device=30, host=7),
        "optimizer": StateBytes(device=20),
    }
    steps = [(1.0, 10, 10, 1.0)] * 2
    metrics = measure(
        [write_repeat(0, {0: {"state_bytes": held | together}}, {0: steps})], RunConstants(world_size=1, dp=1)
    )
    wanted = {
        "gathered_parameter_bytes": 90,
        "gradient_bytes": 30,
        "training_state_bytes": 165,
        "training_state_host_bytes": 7,
    }
    assert {name: metrics[name].mean for name in wanted} == wanted
    without = measure([write_repeat(1, {0: {"state_bytes": held}}, {0: steps})], RunConstants(world_size=1, dp=1))
    assert (without["gathered_parameter_bytes"], without["training_state_bytes"].mean) == (None, 100)


def test_optimizer_state_is_that_of_the_fullest_rank_over_all_that_trains(write_repeat):
    held = {
        rank: {"state_bytes": {"moments": StateBytes(device=4000, host=100 * rank)}, "trainable_parameters": 1000}
        for rank in (0, 1)
    }
    metrics = measure(
        [write_repeat(0, held, {rank: [(1.0, 10, 10, 1.0)] * 2 for rank in (0, 1)})], RunConstants(world_size=2, dp=2)
    )
    assert metrics["optimizer_state_bytes_per_parameter"].mean == 4.1


def test_without_a_gpu_there_is_no_allocator_peak(two_replicas):
    metrics = measure([two_replicas], RunConstants(world_size=2, dp=2))
    assert metrics["peak_allocated_bytes"] is None
    assert metrics["peak_allocated_rank0_bytes"] is None
    assert set(metrics) == set(METRICS)


def test_without_phases_there_are_no_phase_times(write_repeat):
    folder = write_repeat(0, {0: {}}, {0: [(1.0, 10, 10, 1.0)] * 2})
    samples = folder / "samples.0.jsonl"
    samples.write_text(re.sub(r'"phases_s":\{[^}]*\}', '"phases_s":null', samples.read_text()))
    assert measure([folder], RunConstants(world_size=1, dp=1))["forward_time_s"] is None


@pytest.mark.parametrize("diverged", ["null", "Infinity"])
def test_a_diverged_loss_is_no_number_and_spoils_nothing_else(write_repeat, diverged):
    folders = [write_repeat(k, {0: {}}, {0: [(1.0, 10, 10, 1.0)] * 2}) for k in (0, 1)]
    samples = folders[1] / "samples.0.jsonl"
    samples.write_text(samples.read_text().replace('"loss":1.0', f'"loss":{diverged}'))
    metrics = measure(folders, RunConstants(world_size=1, dp=1))
    assert math.isnan(metrics["final_loss"].mean)
    assert (metrics["final_loss"].std_between_repeats, metrics["final_loss"].n) == (None, 2)
    assert metrics["tokens_per_s"].mean == 10


SKIPPED = [True, False, False, True, *[False] * 97]


def scaled_repeat(write_repeat, skipped):
    """A repeat of 1 step of warm-up and 100 measured ones, some of which updated nothing."""
    folder = write_repeat(len(skipped), {0: {"window_wall_s": 100.0}}, {0: [(1.0, 10, 10, 1.0)] * len(skipped)})
    path = folder / "samples.0.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [line | {"loss_scale": 8.0, "skipped": each} for line, each in zip(lines, skipped, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in told))
    return read_training(folder, 1)


def test_measured_steps_that_updated_nothing_are_counted(write_repeat, two_replicas):
    assert METRICS.measure([scaled_repeat(write_repeat, SKIPPED)], RunConstants(1, 1))["skipped_steps"].mean == 1
    assert measure([two_replicas], RunConstants(world_size=2, dp=2))["skipped_steps"] is None


def test_a_speed_that_more_than_one_step_of_a_hundred_flatters_is_told(write_repeat):
    few = scaled_repeat(write_repeat, SKIPPED)
    assert PRETRAIN.doubts([few]) == []
    many = scaled_repeat(write_repeat, [*SKIPPED[:-1], True, False, False, False])
    (doubt,) = PRETRAIN.doubts([few, many])
    assert doubt.kind == "skipped"
    assert doubt.words.startswith("skipped: 2 of 103 measured steps had gradients that overflowed, and updated nothing")
