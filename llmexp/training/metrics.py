"""The metrics of a training run: each is one function of one repeat, with its unit, direction and column in METRICS.

Positions count padding, real tokens do not; both are summed over data-parallel replicas and divided by the wall time of
the slowest rank.

FLOPs are the model's for every position (padding is computed too), with attention within records; flops.py says what
each metric counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llmexp.analysis.metric import Metrics, Shown
from llmexp.analysis.quantity import Measurement
from llmexp.analysis.window import duration_s, slowest, timed_shares
from llmexp.errors import RecordError
from llmexp.record.flops import Flops
from llmexp.record.samples import Energy, StepSample
from llmexp.training import flops
from llmexp.training.convergence import curve_of
from llmexp.training.failure_metrics import FAILURE_METRICS
from llmexp.training.memory_metrics import add_memory
from llmexp.training.over_steps import loss_of, mean_of, phase_time, rate_of, skipped_of, tflops_of
from llmexp.training.repeats import RunConstants, TrainingRepeat

# Clocks of host and device differ by parts in a million, and an event is exact to less than a microsecond, so a
# difference of a percent has another cause.
CLOCKS_AGREE = 0.01

# NVML averages power over a second (nvmlDeviceGetPowerUsage in its reference, Ampere and later), which is 5 % of 20 s.
SHORTEST_FOR_ENERGY_S = 20.0

METRICS = Metrics()
metric = METRICS.add


@metric("tokens/s", "higher")
def tokens_per_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """Positions per second in the measured window, over all replicas.

    Padding counts. The slowest rank gives the time. Nothing is multiplied by tp, pp or cp.
    """
    return rate_of(repeat, facts, "positions")


@metric("tokens/s", "higher")
def tokens_per_s_per_gpu(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """tokens_per_s divided by the number of all devices, including those of tp, pp and cp."""
    return tokens_per_s(repeat, facts).times(1 / facts.world_size)


@metric("tokens/s", "higher", Shown("real tokens/s", dispensable=9))
def real_tokens_per_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Tokens per second without padding, over all replicas; None for engine=script, which reports only tokens."""
    return None if "program" in repeat.ranks[0].what_ran else rate_of(repeat, facts, "real_tokens")


@metric("samples/s", "higher", Shown("samples/s", ",.2f", dispensable=3))
def samples_per_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Sequences per second over all replicas, for packed instructions their records;
    None if samples do not count them.
    """
    counted = all(sample.samples for step in repeat.measured for sample in step)
    return rate_of(repeat, facts, "samples") if counted else None


@metric("s", "lower")
def epoch_time_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Time of one pass over all records of the data at samples_per_s; None for endless data."""
    rate, records = samples_per_s(repeat, facts), repeat.ranks[0].what_ran.get("data_records")
    return Measurement(records / rate.value) if rate and records else None


@metric("USD", "lower", Shown("epoch USD", ",.2f", dispensable=4))
def epoch_usd(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Cost of one pass over all records in USD, all devices paid for."""
    time_s = epoch_time_s(repeat, facts)
    return time_s.times(_usd_per_s(facts)) if time_s and facts.price_per_device_hour_usd else None


@metric("steps")
def measured_steps(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """Steps of the measured window; with adaptive stopping only as many as tokens_per_s needed to settle."""
    return Measurement(len(repeat.measured))


@metric("steps", "lower", Shown("skipped steps", ".0f", dispensable=2))
def skipped_steps(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Steps of the measured window whose gradients overflowed in fp16, so that they updated nothing;
    None where losses are not scaled.

    `samples.*.jsonl` has each step's `loss_scale` and whether it was `skipped`.
    """
    skipped = skipped_of(repeat.measured)
    return None if skipped is None else Measurement(skipped)


@metric("share", "higher")
def timed_share_of_wall(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """Time inside steps divided by the window's wall time, on the rank where it is lowest;
    raises RecordError if the steps took longer than the window.

    Steps are timed by the device's clock, the window by the host's. The rest lies between steps: the next batch, the
    samples' file, a device that waits for the host. Above 1.01 a clock is wrong and the run fails.
    """
    shares = timed_shares(repeat)
    if max(shares) > 1 + CLOCKS_AGREE:
        rank = shares.index(max(shares))
        wall_s = repeat.ranks[rank].window_wall_s
        raise RecordError(
            f"steps of {shares[rank] * wall_s:.6g} s in a window of {wall_s:.6g} s are impossible: rank {rank}'s "
            "device clock, or the host's, is wrong"
        )
    return Measurement(min(shares))


@metric("s", "lower", Shown("step time s", ".3f", dispensable=4))
def step_time_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """Wall time of an optimizer step on the slowest rank of that step."""
    return mean_of([duration_s(slowest(step)) for step in repeat.measured])


@metric("s", "lower")
def forward_time_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Forward passes of a step, all accumulated ones, on the slowest rank of that step.

    The three phases add up to the step. On CUDA they are timed by events in the stream, which adds no synchronization.
    """
    return phase_time(repeat, "forward")


@metric("s", "lower")
def backward_time_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Backward passes of a step, all accumulated ones, on the slowest rank of that step."""
    return phase_time(repeat, "backward")


@metric("s", "lower")
def optimizer_time_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """The optimizer's part of a step, on the slowest rank of that step."""
    return phase_time(repeat, "optimizer")


@metric("TFLOP/s", "higher")
def tflops_per_s_per_gpu(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Model TFLOP/s of one device.

    Recomputation is left out. With `engine=script` it is known only if the program trains the configured model.
    """
    return tflops_of(repeat, facts, flops.model)


@metric("share", "higher", Shown("MFU %", ".1f", 100, dispensable=6))
def mfu(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Model FLOP/s over the dense peak, 0 to 1; raises RecordError above 1, because then a count or the peak is wrong.

    The peak is that of the products' dtype, from `conf/hardware/*.yaml` with its source: products in fp8 count for the
    time that they take at its peak. Unknown hardware has none.
    """
    return _checked("MFU", _share_of_peak(repeat, facts, flops.model), repeat, facts)


@metric("share", "higher")
def mfu_full_attention(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """mfu with every pair of each sequence counted, as PaLM does;
    it can exceed 1, because causal kernels skip half of them.

    Masked pairs count too, as in the paper of Megatron (arXiv 2104.04473) and nanoGPT: for comparison with published
    figures.
    """
    return _share_of_peak(repeat, facts, flops.full_attention)


@metric("share", "higher")
def useful_mfu(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """mfu of tokens without padding; None for engine=script, which reports only tokens."""
    return None if "program" in repeat.ranks[0].what_ran else _share_of_peak(repeat, facts, flops.useful)


@metric("share", "higher")
def hfu(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """All FLOP/s that the devices computed, useful or not, over the dense peak; raises RecordError above 1.

    None with `engine=script`.
    """
    kernel = repeat.ranks[0].what_ran.get("attention_kernel")
    return _checked("HFU", _share_of_peak(repeat, facts, partial(flops.computed, kernel=kernel)), repeat, facts)


@metric("s", "lower")
def time_to_first_step_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """From a rank's start to the end of its first step, on the slowest rank."""
    return Measurement(max(rank.time_to_first_step_s for rank in repeat.ranks))


@metric("USD", "lower")
def usd_per_million_tokens(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Cost of a million positions in USD, all devices paid for."""
    if facts.price_per_device_hour_usd is None:
        return None
    return Measurement(1e6 * _usd_per_s(facts) / tokens_per_s(repeat, facts).value)


@metric("tokens/USD", "higher", Shown("M tokens /USD", "g", 1e-6, dispensable=1))
def tokens_per_usd(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Positions per USD, all devices paid for; None if the hardware has no price."""
    return (
        Measurement(tokens_per_s(repeat, facts).value / _usd_per_s(facts)) if facts.price_per_device_hour_usd else None
    )


@metric("W", "lower")
def mean_power_w(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Power of what the run's energy counters cover, over the measured window;
    None if one cannot be read, or the window is too short.

    `what_ran.energy_counters` names the counters. On CUDA they cover the boards of the run's own GPUs (NVML's total
    energy counter, Volta and later), without the host. On CPU they cover all packages of the node (RAPL of Intel and
    AMD), whatever runs on them, without their memory. Most systems let only root read RAPL. A window has to last
    20 s: NVML averages power over a second, which is 5 % of that.
    """
    energies = [rank.energy for rank in repeat.ranks if rank.energy and _tells(rank.energy)]
    if len(energies) < len(repeat.ranks) or not any(energy.joules for energy in energies):
        return None
    return Measurement(sum(sum(energy.joules.values()) / energy.seconds for energy in energies))


@metric("tokens/J", "higher", Shown("tokens/J", ".2f", dispensable=1))
def tokens_per_joule(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Positions per joule: tokens_per_s over mean_power_w."""
    power = mean_power_w(repeat, facts)
    return Measurement(tokens_per_s(repeat, facts).value / power.value) if power else None


add_memory(METRICS)
METRICS.update(FAILURE_METRICS)


@metric("nats")
def first_loss(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """Loss of the first step, warm-up or not, as the mean over ranks."""
    return loss_of((repeat.warmup or repeat.measured)[0])


@metric("nats", "lower")
def final_loss(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """Loss of the last measured step, as the mean over ranks."""
    return loss_of(repeat.measured[-1])


@metric("tokens")
def trained_tokens(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Tokens trained on, warm-up included, without padding; only with a budget of tokens or seconds."""
    return Measurement(curve_of([repeat], facts).tokens[-1]) if facts.has_budget else None


@metric("nats", "lower")
def smoothed_final_loss(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Mean loss over the last 5 % of the tokens trained on; only with a budget of tokens or seconds."""
    return Measurement(curve_of([repeat], facts).final_loss) if facts.has_budget else None


@metric("parameters")
def parameters(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Parameters of the whole model; None if only the program that built it knows."""
    return _count(repeat.ranks[0].parameters)


@metric("parameters", column=Shown("trained M", ",.2f", 1e-6, dispensable=5))
def trainable_parameters(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Parameters of the whole model that train; None in the same cases as `parameters`."""
    return _count(repeat.ranks[0].trainable_parameters)


def _usd_per_s(facts: RunConstants) -> float:
    return facts.world_size * (facts.price_per_device_hour_usd or 0.0) / 3600


def _count(parameters: int | None) -> Measurement | None:
    return None if parameters is None else Measurement(parameters)


def _share_of_peak(
    repeat: TrainingRepeat, facts: RunConstants, count: Callable[[StepSample, Flops], float | None]
) -> Measurement | None:
    tflops = tflops_of(repeat, facts.at_peaks, count)
    return tflops.times(1e12 / facts.peak_flops_per_s) if tflops and facts.peak_flops_per_s else None


def _checked(name: str, share: Measurement | None, repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    if share is None or share.value <= 1 or facts.peak_flops_per_s is None:
        return share
    tokens, achieved = tokens_per_s_per_gpu(repeat, facts).value, share.value * facts.peak_flops_per_s
    raise RecordError(
        f"{name} of {share.value:.3g} is impossible: {tokens:.6g} tokens/s per device x {achieved / tokens:.6g} "
        f"FLOPs a token = {achieved / 1e12:.6g} TFLOP/s, above the peak of {facts.peak_flops_per_s / 1e12:.6g} TFLOP/s"
    )


def _tells(energy: Energy) -> bool:
    """Tell whether the window was long enough for the energy counters and each of them increased."""
    return energy.seconds >= SHORTEST_FOR_ENERGY_S and all(joules > 0 for joules in energy.joules.values())
