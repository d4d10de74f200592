"""The measured part of a training rank, the same for every engine: warm up, measure, trace, sum up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from io import StringIO
from typing import Any

import torch
from torch import distributed

from llmexp.launchers.data import loader
from llmexp.launchers.data.sequences import Sequences
from llmexp.launchers.models.weights import weights_that_ran
from llmexp.launchers.rank.binding import bind_beside
from llmexp.launchers.rank.frame import Rank, device_of, gpu_uuid, lift_memory_limit
from llmexp.launchers.rank.versions import rank_environment
from llmexp.launchers.training.engine_kinds import KeepsFiles, RankEngine
from llmexp.launchers.training.frame import train
from llmexp.launchers.training.learning_rates import updates_of
from llmexp.launchers.training.loss_scaling import run_until_updated, scale_that_ran
from llmexp.launchers.training.module_ranges import ranges_of, step_with_ranges
from llmexp.launchers.training.state_watch import watch_over
from llmexp.launchers.training.stopping import run_window
from llmexp.machine.energy_counters import Counter, gpu_counters, package_counters
from llmexp.measure import memory
from llmexp.measure.batch import MicroBatch
from llmexp.measure.clock import clock_for
from llmexp.measure.compilation import Compilation
from llmexp.measure.kernels import KernelProbe, trace_to
from llmexp.measure.loop import StepLoop
from llmexp.method import Method
from llmexp.record.energy import EnergyMeter
from llmexp.record.samples import Energy, GpuWindow, TrainingSummary
from llmexp.record.throttle_counters import ThrottleMeter
from llmexp.record.what_ran import WhatRan
from llmexp.training.config import TrainingMeasureConfig
from llmexp.training.plan.artifacts import kept_weights
from llmexp.training.plan.seq_len_schedule import LengthSchedule
from llmexp.training.plan.training_plan import TrainingPlan

SAVING_REPEAT = "repeat.0"
# Two steps of a model of 7B take some megabytes a rank.
TRACED_RANKS = 8
# Where seconds say when training ends, a rank holds at most so many tokens of text, half a GiB, and reads them again.
HELD_TOKENS = 2**26


@dataclass(frozen=True)
class Window:
    """The measured window: its wall time, the graphs compiled in it, and what meters and the compiler's counts say."""

    wall_s: float
    compiled: int
    energy: Energy | None
    gpu: GpuWindow | None
    what_ran: dict[str, Any]


def measure_training(plan: TrainingPlan, rank: Rank, engine: RankEngine, device: torch.device) -> TrainingSummary:
    """Run the protocol of plan.config.measure on `engine` and return what this rank has measured.

    Weights are saved as they are at the window's end. The profiler runs only after that, because it may leave something
    in the process that slows launches down.
    """
    protocol, sequences = plan.config.measure, sequences_of(plan, engine.vocab_size)
    batches = loader.batches(sequences, plan.dims.replica_of(rank.index), plan.dims.dp, plan.batch, device)
    watch, peaks = watch_over(engine, device), memory.Peaks(device)
    with rank.samples_path.open("a") as file:
        loop = StepLoop(watch, clock_for(device), file, memory.current_bytes(device))
        loop.phases, loop.digests, loop.updates = protocol.phases, True, updates_of(plan, engine)
        loop.run(batches, range(1), warmup=True)
        time_to_first_step_s = rank.seconds_since_start()
        taken = 1 + run_until_updated(loop, batches, range(1, protocol.warmup_steps))
        gradient_norm, loop.trainable = engine.gradient_norm(), engine
        _warm_up(loop, batches, range(taken, protocol.warmup_steps), peaks)
        window = _window(loop, batches, protocol, rank, device)
    peak_bytes = peaks.summary()
    lift_memory_limit()
    kept = _kept(plan, rank, engine, device)
    # Whoever waits for rank 0 to write waits here, and in no smaller group, which has a timeout of its own.
    distributed.barrier()
    probe = _profile(protocol, rank, engine, unrecorded(engine, device), batches)
    # No rank leaves while a peer may still wait for it in a collective.
    distributed.barrier()
    return TrainingSummary(
        rank=rank.index,
        window_wall_s=window.wall_s,
        time_to_first_step_s=time_to_first_step_s,
        parameters=engine.parameters,
        trainable_parameters=engine.trainable_parameters,
        compiled_in_window=window.compiled,
        state_bytes=watch.count.state,
        largest_update=watch.count.largest_update,
        gradient_norm=gradient_norm,
        what_ran=window.what_ran
        | {"peak_phase": peaks.phase}
        | what_was_read(plan, sequences, loop.taken)
        | _what_ran(plan, sequences, probe, engine)
        | kept,
        environment=rank_environment(device, rank.folder) if rank.index == 0 else {},
        energy=window.energy,
        gpu=window.gpu,
        phase_peak_bytes=peaks.of_phases if device.type == "cuda" else {},
        **peak_bytes,
    )


def _warm_up(loop: StepLoop, batches: Iterator[Sequence[MicroBatch]], steps: range, peaks: memory.Peaks) -> None:
    """Take the warm-up's steps after its first update, and the memory's peak in each of their phases."""
    loop.at_phase_end = peaks.end_phase
    peaks.begin_phases()
    loop.run(batches, steps, warmup=True)
    loop.at_phase_end = None


def _window(
    loop: StepLoop,
    batches: Iterator[Sequence[MicroBatch]],
    protocol: TrainingMeasureConfig,
    rank: Rank,
    device: torch.device,
) -> Window:
    """Take the measured steps between readings of the meters."""
    before = Compilation.so_far()
    with ThrottleMeter(gpu_uuid(device)) as throttling, EnergyMeter(counters_of(rank, device)) as meter:
        wall_s = run_window(loop, batches, protocol, rank, device)
    after = Compilation.so_far()
    what_ran = {"device": str(device), "energy_counters": meter.covers} | after.what_ran
    return Window(wall_s, after.graphs - before.graphs, meter.energy, throttling.found, what_ran)


def run_rank(join: Callable[[torch.device], None], build: Callable[[TrainingPlan, torch.device], RankEngine]) -> None:
    """Run one rank of an engine, from its command line to its summary: meet the others, build, measure."""

    def work(plan: TrainingPlan, rank: Rank) -> TrainingSummary:
        device = device_of(plan.config.hardware, rank.local_index)
        bind_beside(device)
        torch.set_float32_matmul_precision("high" if plan.config.precision.tf32 else "highest")
        join(device)
        engine = build(plan, device)
        try:
            return measure_training(plan, rank, engine, device)
        finally:
            if isinstance(engine, KeepsFiles):
                engine.remove_files()

    train(work)


def _kept(plan: TrainingPlan, rank: Rank, engine: RankEngine, device: torch.device) -> dict[str, Any]:
    kept = kept_weights(plan.config, Method.parse(plan.method, plan.config.task.name).techniques)
    if not kept or rank.folder.name != SAVING_REPEAT:
        return {}
    # it imports transformers' models, which not every engine trains
    from llmexp.launchers.training.saving import Saving

    return Saving(plan, rank, engine.module, device).save(kept)


def counters_of(rank: Rank, device: torch.device) -> list[Counter] | None:
    """Return this rank's energy counters: its own GPU's board, or on cpu the node's packages.

    One rank counts the packages for all.
    """
    if device.type == "cuda":
        return gpu_counters(gpu_uuid(device) or "")
    return package_counters() if rank.local_index == 0 else []


def _profile(
    protocol: TrainingMeasureConfig,
    rank: Rank,
    engine: RankEngine,
    loop: StepLoop,
    batches: Iterator[Sequence[MicroBatch]],
) -> KernelProbe:
    """Record which kernels one step runs, and trace some steps."""
    probe = KernelProbe()
    with probe.watch():
        loop.run(batches, range(1), warmup=True)
    trace_steps(protocol, rank, engine, loop, batches)
    return probe


def trace_steps(
    protocol: TrainingMeasureConfig,
    rank: Rank,
    engine: RankEngine,
    loop: StepLoop,
    batches: Iterator[Sequence[MicroBatch]],
) -> None:
    """Trace steps of the last repeat on the first ranks, where measure.profile asks for it.

    The first repeat is traced where the measured precision decides how many there are.
    """
    traced = 0 if protocol.stop_at_interval_share else protocol.repeats - 1
    if protocol.profile and rank.folder.name == f"repeat.{traced}":
        with _traced(rank, engine, loop) if rank.index < TRACED_RANKS else nullcontext():
            loop.run(batches, range(protocol.profile_steps), warmup=True)


@contextmanager
def _traced(rank: Rank, engine: RankEngine, loop: StepLoop) -> Iterator[None]:
    """Trace this rank's steps with ranges."""
    loop.take_step = step_with_ranges
    with ranges_of(engine.module), trace_to(rank.folder / "trace" / f"rank{rank.index}.json.gz"):
        yield


def unrecorded(engine: RankEngine, device: torch.device) -> StepLoop:
    """Return a loop that drops its samples, because a profiled step is not a measured one."""
    return StepLoop(engine, clock_for(device), StringIO(), memory.current_bytes(device))


def sequences_of(plan: TrainingPlan, vocab_size: int) -> Sequences:
    """Load the sequences that all steps of a repeat read."""
    protocol = plan.config.measure
    steps = protocol.warmup_steps + protocol.steps + protocol.profile_steps
    number = HELD_TOKENS // plan.config.data.seq_len if protocol.duration_s else steps * plan.batch.global_
    sequences = loader.load(plan.config.data, vocab_size, number, plan.config.seed)
    if plan.config.data.seq_len_schedule:
        sequences.length_of_step = LengthSchedule.of(plan.config).at
    if protocol.duration_s:
        return sequences.shuffled(len(sequences.ids), plan.config.seed)
    if protocol.tokens is None:
        return sequences
    # The budget sets the number, whatever the batch, so that runs of all batches read the sequences in one order.
    return sequences.shuffled(-(-protocol.tokens // plan.config.data.seq_len), plan.config.seed)


def _what_ran(plan: TrainingPlan, sequences: Sequences, probe: KernelProbe, engine: RankEngine) -> dict[str, Any]:
    """Say which kernels and weights were used, and what the engine says of itself."""
    kernels: WhatRan = {
        "attention_kernel": probe.attention,
        "kernels": probe.costliest(),
        "products_in": probe.products_in,
    }
    if plan.config.precision.linears:
        from llmexp.launchers.models.float8 import float8_that_ran  # it imports transformers' models

        kernels |= float8_that_ran(plan, engine.module, probe.names)
    if plan.config.precision.qat:
        from llmexp.launchers.models.fake_quantizing import weights_that_were_rounded

        kernels |= weights_that_were_rounded(engine.module)
    kernels |= scale_that_ran(engine)
    return {**kernels} | weights_that_ran(plan.config) | engine.what_ran()


def what_was_read(plan: TrainingPlan, sequences: Sequences, steps: int) -> dict[str, Any]:
    """Say what so many steps read.

    data_passes is how often all existing sequences were read; it is 1 where there were enough for every step.
    """
    passes = round(max(1.0, steps * plan.batch.global_ / len(sequences.ids)), 2)
    return {"data_passes": passes, "data_records": sequences.records} | sequences.what_was_read
