"""The metrics of a training run: each is one function of one repeat, with its unit, direction and column in METRICS.

Positions count padding, real tokens do not; both are summed over data-parallel replicas and divided by the wall time of
the slowest rank.

FLOPs are the model's for every position (padding is computed too), with attention within records; flops.py says what
each metric counts.
"""

from __future__ import annotations

from functools import partial

from llmexp.analysis.metric import Metrics, Shown
from llmexp.analysis.quantity import Measurement
from llmexp.analysis.window import duration_s, slowest, timed_shares
from llmexp.errors import RecordError
from llmexp.record.samples import Energy
from llmexp.training import flops
from llmexp.training.convergence import curve_of
from llmexp.training.memory_metrics import add_memory
from llmexp.training.over_steps import loss_of, mean_of, phase_time, rate_of, tflops_of
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
    """Positions of the measured window of all replicas a second.

    Padding counts. The time is that of the slowest rank. Nothing is multiplied by tp, pp or cp.
    """
    return rate_of(repeat, facts, "positions")


@metric("tokens/s", "higher")
def tokens_per_s_per_gpu(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """tokens_per_s over the number of all devices, those of tp, pp and cp too."""
    return tokens_per_s(repeat, facts).times(1 / facts.world_size)


@metric("tokens/s", "higher", Shown("real tokens/s", dispensable=9))
def real_tokens_per_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Tokens that are not padding, of all replicas, a second;
    None of a program of one's own, which tells of tokens alone.
    """
    return None if "program" in repeat.ranks[0].what_ran else rate_of(repeat, facts, "real_tokens")


@metric("samples/s", "higher", Shown("samples/s", ",.2f", dispensable=3))
def samples_per_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Sequences of all replicas a second, of packed instructions the records in them;
    None where samples do not count them.
    """
    counted = all(sample.samples for step in repeat.measured for sample in step)
    return rate_of(repeat, facts, "samples") if counted else None


@metric("s", "lower")
def epoch_time_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """What one pass over all records of the data takes at samples_per_s; None for data that has no end."""
    rate, records = samples_per_s(repeat, facts), repeat.ranks[0].what_ran.get("data_records")
    return Measurement(records / rate.value) if rate and records else None


@metric("USD", "lower", Shown("epoch USD", ",.2f", dispensable=4))
def epoch_usd(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """What that costs in USD, all devices paid for."""
    time_s = epoch_time_s(repeat, facts)
    return time_s.times(_usd_per_s(facts)) if time_s and facts.price_per_device_hour_usd else None


@metric("steps")
def measured_steps(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """Steps of the measured window; with adaptive stopping no more than tokens_per_s took to be known."""
    return Measurement(len(repeat.measured))


@metric("share", "higher")
def timed_share_of_wall(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """Time inside steps over the window's wall time, on the rank where it is lowest;
    raises RecordError where more time was counted than passed.

    Steps are timed by the device's clock, the window by the host's. The rest lies between steps: the next batch, the
    samples' file, a device that waits for the host. Above 1.01 a clock is wrong, and the run fails.
    """
    shares = timed_shares(repeat)
    if max(shares) > 1 + CLOCKS_AGREE:
        rank = shares.index(max(shares))
        wall_s = repeat.ranks[rank].window_wall_s
        raise RecordError(
            f"steps of {shares[rank] * wall_s:.6g} s in a window of {wall_s:.6g} s cannot be: rank {rank}'s "
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

    Recomputation is left out. With `engine=script` it is known only where the program's model is the configuration's.
    """
    return tflops_of(repeat, facts, flops.model)


@metric("share", "higher", Shown("MFU %", ".1f", 100, dispensable=6))
def mfu(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Model FLOP/s over the dense peak, 0 to 1; raises RecordError above 1, for then a count or the peak is wrong.

    The peak is that of the parameters' dtype, from `conf/hardware/*.yaml` with its source. Unknown hardware has none.
    """
    return _checked("MFU", _share_of_peak(tflops_per_s_per_gpu(repeat, facts), facts), repeat, facts)


@metric("share", "higher")
def mfu_full_attention(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """mfu with every pair of each sequence counted, as PaLM does;
    above 1 it may be, for causal kernels leave half of them out.

    Masked pairs count too, as in the paper of Megatron (arXiv 2104.04473) and nanoGPT: for comparison with published
    figures.
    """
    return _share_of_peak(tflops_of(repeat, facts, flops.full_attention), facts)


@metric("share", "higher")
def useful_mfu(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """mfu of tokens that are no padding; None of a program of one's own, which tells of tokens alone."""
    return (
        None if "program" in repeat.ranks[0].what_ran else _share_of_peak(tflops_of(repeat, facts, flops.useful), facts)
    )


@metric("share", "higher")
def hfu(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """What the devices computed, useful or not, over the dense peak; raises RecordError above 1.

    None with `engine=script`.
    """
    kernel = repeat.ranks[0].what_ran.get("attention_kernel")
    done = tflops_of(repeat, facts, partial(flops.computed, kernel=kernel))
    return _checked("HFU", _share_of_peak(done, facts), repeat, facts)


@metric("s", "lower")
def time_to_first_step_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement:
    """From a rank's start to the end of its first step, on the slowest rank."""
    return Measurement(max(rank.time_to_first_step_s for rank in repeat.ranks))


@metric("USD", "lower")
def usd_per_million_tokens(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """What a million positions cost in USD, all devices paid for."""
    if facts.price_per_device_hour_usd is None:
        return None
    return Measurement(1e6 * _usd_per_s(facts) / tokens_per_s(repeat, facts).value)


@metric("tokens/USD", "higher", Shown("M tokens /USD", "g", 1e-6, dispensable=1))
def tokens_per_usd(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Positions that a USD pays for, all devices paid for; None where the hardware has no price."""
    return (
        Measurement(tokens_per_s(repeat, facts).value / _usd_per_s(facts)) if facts.price_per_device_hour_usd else None
    )


@metric("W", "lower")
def mean_power_w(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Power of what the run's energy counters cover, over the measured window;
    None where one cannot be read, or the window is too short for it.

    `what_ran.energy_counters` names the counters. On CUDA they cover the boards of the run's own GPUs (NVML's total
    energy counter, Volta and later), without the host. On CPU they cover all packages of the node (RAPL of Intel and
    AMD), whoever computes on them, without their memory. Most systems let only root read RAPL. A window has to last
    20 s: NVML averages power over a second, which is 5 % of that.
    """
    energies = [rank.energy for rank in repeat.ranks if rank.energy and _tells(rank.energy)]
    if len(energies) < len(repeat.ranks) or not any(energy.joules for energy in energies):
        return None
    return Measurement(sum(sum(energy.joules.values()) / energy.seconds for energy in energies))


@metric("tokens/J", "higher", Shown("tokens/J", ".2f", dispensable=1))
def tokens_per_joule(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Positions for a joule: tokens_per_s over mean_power_w."""
    power = mean_power_w(repeat, facts)
    return Measurement(tokens_per_s(repeat, facts).value / power.value) if power else None


add_memory(METRICS)


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
    """Tokens trained on, warm-up included, padding left out; with a budget of tokens only."""
    return Measurement(curve_of([repeat], facts).tokens[-1]) if facts.token_budget else None


@metric("nats", "lower")
def smoothed_final_loss(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Mean loss of the last 5 % of the tokens trained on; with a budget of tokens only."""
    return Measurement(curve_of([repeat], facts).final_loss) if facts.token_budget else None


@metric("parameters")
def parameters(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Parameters of the whole model; None where only the program that built it knows."""
    return _count(repeat.ranks[0].parameters)


@metric("parameters", column=Shown("trained M", ",.2f", 1e-6, dispensable=5))
def trainable_parameters(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Parameters of the whole model that train; None as for `parameters`."""
    return _count(repeat.ranks[0].trainable_parameters)


def _usd_per_s(facts: RunConstants) -> float:
    return facts.world_size * (facts.price_per_device_hour_usd or 0.0) / 3600


def _count(parameters: int | None) -> Measurement | None:
    return None if parameters is None else Measurement(parameters)


def _share_of_peak(tflops: Measurement | None, facts: RunConstants) -> Measurement | None:
    return tflops.times(1e12 / facts.peak_flops_per_s) if tflops and facts.peak_flops_per_s else None


def _checked(name: str, share: Measurement | None, repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    if share is None or share.value <= 1 or facts.peak_flops_per_s is None:
        return share
    tokens, achieved = tokens_per_s_per_gpu(repeat, facts).value, share.value * facts.peak_flops_per_s
    raise RecordError(
        f"{name} of {share.value:.3g} cannot be: {tokens:.6g} tokens/s per device x {achieved / tokens:.6g} "
        f"FLOPs a token = {achieved / 1e12:.6g} TFLOP/s, above the peak of {facts.peak_flops_per_s / 1e12:.6g} TFLOP/s"
    )


def _tells(energy: Energy) -> bool:
    """Tell whether the window was long enough for the energy counters and each of them increased."""
    return energy.seconds >= SHORTEST_FOR_ENERGY_S and all(joules > 0 for joules in energy.joules.values())
