"""Disturbances of a run: other processes, other systems of the hypervisor, and throttled GPUs.

They are found in samples of the machine taken during the run, and in what NVML counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmexp.analysis.throttling import ThrottlingSample, counted, known_reasons, locked, sampled, sm_clock
from llmexp.record.reading import read_json_lines
from llmexp.record.result import Doubt, DoubtKind, SmClock
from llmexp.record.samples import GpuWindow, origin_unix_s, read_samples
from llmexp.record.samples import Sample as RankSample

Window = tuple[float, float]
# A quiet machine's services use less than 0.1 core; one busy process gets half a core even where it shares with a rank.
OTHER_CORES = 0.25
# Whoever took fewer cores is not worth naming.
NAMED_CORES = 0.05


@dataclass(frozen=True)
class Machine:
    """A machine during the measured windows, with `cores` in all, of which ranks compute with `wanted_cores`.

    `samples` are those that overlap a window, each with the seconds of overlap.
    """

    samples: Sequence[tuple[ThrottlingSample, float]]
    cores: int
    wanted_cores: int
    name: str = ""
    """The machine's name if there are several; it precedes each reason."""
    within: Sequence[ThrottlingSample] = ()
    """Samples taken inside a window, for values of a moment."""
    on_gpus: bool = True
    """Tell whether the run computes on GPUs; otherwise the machine's GPUs are ignored."""
    counted: Sequence[GpuWindow | None] = ()
    """NVML's counts over the windows, for each rank on this machine and each repeat; None where it has none."""

    @property
    def other_cores(self) -> float | None:
        """The mean number of cores used by processes outside the run; None where no sample has it."""
        return self._mean("cpu_other_cores")

    @property
    def stolen_cores(self) -> float:
        """The mean number of cores that a hypervisor gave to other systems while this one wanted them."""
        return self._mean("cpu_stolen_cores") or 0.0

    def _mean(self, name: str) -> float | None:
        known = [(sample[name], seconds) for sample, seconds in self.samples if name in sample]
        total_s = sum(seconds for _, seconds in known)
        return sum(cores * seconds for cores, seconds in known) / total_s if total_s else None


def read_machine(system: Path, ranks: Sequence[Path], cores: int, wanted_cores: int) -> Machine:
    """Read the samples taken during the measured windows of each repeat.

    `ranks` are the sample files of a rank on this machine, whose clock the windows are taken from.
    """
    windows = windows_unix_s(ranks)
    told = [(sample, _overlap_s(sample, windows)) for sample in read_json_lines(system)]
    within = [sample for sample, _ in told if any(begin <= sample["at_s"] <= end for begin, end in windows)]
    return Machine([(sample, seconds) for sample, seconds in told if seconds > 0], cores, wanted_cores, within=within)


def windows_unix_s(ranks: Iterable[Path]) -> list[Window]:
    """Return begin and end of each of these ranks' measured windows in Unix time."""
    return [window for samples in ranks for window in _window_unix_s(samples)]


def disturbances(machine: Machine) -> list[Doubt]:
    """Say with figures what kept the ranks from the hardware; empty where nothing did."""
    by_gpu = (doubt for index in _own_gpus(machine) for doubt in _gpu(machine, index))
    throttled = map(_throttling, counted([window for window in machine.counted if window]))
    before = f"{machine.name}: " if machine.name else ""
    return [Doubt(kind=doubt.kind, words=before + doubt.words) for doubt in (*_host(machine), *by_gpu, *throttled)]


def _throttling(words: str) -> Doubt:
    return Doubt(kind=DoubtKind.THROTTLING, words=words)


def sm_clocks(machine: Machine) -> list[SmClock]:
    """Return the SM clock of each GPU of the run that was sampled inside a window."""
    before = f"{machine.name}: " if machine.name else ""
    windows = [window for window in machine.counted if window]
    found = (
        sm_clock(f"{before}GPU {index}", _of_gpu(machine.within, index), [w for w in windows if w.index == index])
        for index in _own_gpus(machine)
    )
    return [clock for clock in found if clock]


def _host(machine: Machine) -> Iterator[Doubt]:
    other, stolen = machine.other_cores or 0.0, machine.stolen_cores
    spare = machine.cores - machine.wanted_cores
    if other + stolen > spare + OTHER_CORES:
        load = max(sample.get("load_average_1m", 0.0) for sample, _ in machine.samples)
        takers = {"other processes": other, "the hypervisor": stolen}
        took = " and ".join(f"{taker} took {cores:.2f}" for taker, cores in takers.items() if cores >= NAMED_CORES)
        words = (
            f"contention: {took} of {machine.cores} cores while the ranks compute with {machine.wanted_cores} "
            f"(highest load average {load:.1f})"
        )
        yield Doubt(kind=DoubtKind.CONTENTION, words=words)


def _own_gpus(machine: Machine) -> list[int]:
    """Return the GPUs with a process of the run.

    Where NVML could not tell whose processes there are, these are the GPUs that the ranks name, or else all.
    """
    if not machine.on_gpus:
        return []
    keys = {key for sample, _ in machine.samples for key in sample}
    indices = sorted({int(key.split("_")[1]) for key in keys if key.startswith("gpu_")})
    own = [index for index in indices if any(sample.get(f"gpu_{index}_own_processes") for sample, _ in machine.samples)]
    named = {window.index for window in machine.counted if window}
    return own or [index for index in indices if index in named] or indices


def _gpu(machine: Machine, index: int) -> Iterator[Doubt]:
    samples = _of_gpu([sample for sample, _ in machine.samples], index)
    others = max(sample.get("other_processes", 0) if sample.get("own_processes") else 0 for sample in samples)
    if others:
        words = f"contention: {others:.0f} other processes on GPU {index}"
        yield Doubt(kind=DoubtKind.GPU_CONTENTION, words=words)
    yield from map(_throttling, sampled(index, samples, known_reasons(machine.counted)))
    yield from map(_throttling, locked(index, _of_gpu(machine.within, index)))


def _of_gpu(samples: Iterable[ThrottlingSample], index: int) -> list[ThrottlingSample]:
    return [{key.removeprefix(f"gpu_{index}_"): value for key, value in sample.items()} for sample in samples]


def _window_unix_s(path: Path) -> Iterator[Window]:
    """Yield begin and end of a rank's measured window in Unix time."""
    samples = read_samples(path, RankSample)
    measured = [sample for sample in samples if not sample.warmup]
    if measured:
        origin_s = origin_unix_s(path, samples)
        yield origin_s + measured[0].t_start_s, origin_s + measured[-1].t_end_s


def _overlap_s(sample: ThrottlingSample, windows: Sequence[Window]) -> float:
    end_s = sample["at_s"]
    begin_s = end_s - sample.get("interval_s", 0.0)
    return sum(max(0.0, min(end_s, end) - max(begin_s, begin)) for begin, end in windows)
