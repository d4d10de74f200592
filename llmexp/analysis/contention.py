"""What stood in the way of a run, from samples of the machine taken beside it and what NVML counted: other processes, throttled GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmexp.analysis.throttling import Sample, counted, known_reasons, locked, sampled, sm_clock
from llmexp.record.folder import read_json_lines
from llmexp.record.result import SmClock
from llmexp.record.samples import GpuWindow, origin_unix_s, read_samples
from llmexp.record.samples import Sample as RankSample

Window = tuple[float, float]
# A quiet machine's services take under 0.1 core; one busy process gets half a core even where it must share with a rank.
OTHER_CORES = 0.25
# Less, of whoever else took cores, is not worth a word.
NAMED_CORES = 0.05


@dataclass(frozen=True)
class Machine:
    """Samples that fall into a measured window, each with the seconds of it that it tells of; the host's cores, and those that ranks compute with."""

    samples: Sequence[tuple[Sample, float]]
    cores: int
    wanted_cores: int
    name: str = ""
    """Of one machine of several; it stands before what is said of it."""
    within: Sequence[Sample] = ()
    """Samples taken at a moment inside a window, for what has a value at a moment only."""
    on_gpus: bool = True
    """Whether the run computes on GPUs; else those of the machine are others' concern."""
    counted: Sequence[GpuWindow | None] = ()
    """What NVML counted over the windows, of each rank on this machine and each repeat; None where it counts nothing."""

    @property
    def other_cores(self) -> float | None:
        """Mean cores taken by processes that are not the run's; None where no sample tells."""
        return self._mean("cpu_other_cores")

    @property
    def stolen_cores(self) -> float:
        """Mean cores that a hypervisor gave to other systems while this one wanted them."""
        return self._mean("cpu_stolen_cores") or 0.0

    def _mean(self, name: str) -> float | None:
        known = [(sample[name], seconds) for sample, seconds in self.samples if name in sample]
        total_s = sum(seconds for _, seconds in known)
        return sum(cores * seconds for cores, seconds in known) / total_s if total_s else None


def read_machine(system: Path, ranks: Sequence[Path], cores: int, wanted_cores: int) -> Machine:
    """Read the samples taken during the measured windows of each repeat, by the steps of a rank that ran on this machine's clock."""
    windows = windows_unix_s(ranks)
    told = [(sample, _overlap_s(sample, windows)) for sample in read_json_lines(system)]
    within = [sample for sample, _ in told if any(begin <= sample["at_s"] <= end for begin, end in windows)]
    return Machine([(sample, seconds) for sample, seconds in told if seconds > 0], cores, wanted_cores, within=within)


def windows_unix_s(ranks: Iterable[Path]) -> list[Window]:
    """Begin and end of each of these ranks' measured windows in Unix time."""
    return [window for samples in ranks for window in _window_unix_s(samples)]


def disturbances(machine: Machine) -> list[str]:
    """Say with figures what kept the ranks from the hardware; empty where nothing did."""
    by_gpu = (reason for index in _own_gpus(machine) for reason in _gpu(machine, index))
    said = [*_host(machine), *by_gpu, *counted([window for window in machine.counted if window])]
    return [f"{machine.name}: {reason}" if machine.name else reason for reason in said]


def sm_clocks(machine: Machine) -> list[SmClock]:
    """The SM clock of each GPU of the run that a sample inside a window tells."""
    before = f"{machine.name}: " if machine.name else ""
    found = (sm_clock(f"{before}GPU {index}", _of_gpu(machine.within, index)) for index in _own_gpus(machine))
    return [clock for clock in found if clock]


def _host(machine: Machine) -> Iterator[str]:
    other, stolen = machine.other_cores or 0.0, machine.stolen_cores
    spare = machine.cores - machine.wanted_cores
    if other + stolen > spare + OTHER_CORES:
        load = max(sample.get("load_average_1m", 0.0) for sample, _ in machine.samples)
        takers = {"other processes": other, "the hypervisor": stolen}
        took = " and ".join(f"{taker} took {cores:.2f}" for taker, cores in takers.items() if cores >= NAMED_CORES)
        yield (
            f"contention: {took} of {machine.cores} cores while the ranks compute with {machine.wanted_cores} "
            f"(load average up to {load:.1f})"
        )


def _own_gpus(machine: Machine) -> list[int]:
    """GPUs with a process of the run; where NVML could not tell whose processes are where those that its ranks name, or all of them."""
    if not machine.on_gpus:
        return []
    keys = {key for sample, _ in machine.samples for key in sample}
    indices = sorted({int(key.split("_")[1]) for key in keys if key.startswith("gpu_")})
    own = [index for index in indices if any(sample.get(f"gpu_{index}_own_processes") for sample, _ in machine.samples)]
    named = {window.index for window in machine.counted if window}
    return own or [index for index in indices if index in named] or indices


def _gpu(machine: Machine, index: int) -> Iterator[str]:
    samples = _of_gpu([sample for sample, _ in machine.samples], index)
    others = max(sample.get("other_processes", 0) if sample.get("own_processes") else 0 for sample in samples)
    if others:
        yield f"contention: {others:.0f} other processes on GPU {index}"
    yield from sampled(index, samples, known_reasons(machine.counted))
    yield from locked(index, _of_gpu(machine.within, index))


def _of_gpu(samples: Iterable[Sample], index: int) -> list[Sample]:
    return [{key.removeprefix(f"gpu_{index}_"): value for key, value in sample.items()} for sample in samples]


def _window_unix_s(path: Path) -> Iterator[Window]:
    """Begin and end of a rank's measured window in Unix time."""
    samples = read_samples(path, RankSample)
    measured = [sample for sample in samples if not sample.warmup]
    if measured:
        origin_s = origin_unix_s(path, samples)
        yield origin_s + measured[0].t_start_s, origin_s + measured[-1].t_end_s


def _overlap_s(sample: Sample, windows: Sequence[Window]) -> float:
    end_s = sample["at_s"]
    begin_s = end_s - sample.get("interval_s", 0.0)
    return sum(max(0.0, min(end_s, end) - max(begin_s, begin)) for begin, end in windows)
