"""What stood in the way of a run, from samples of the machine taken beside it: other processes, throttled GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llmexp.record.folder import read_json_lines
from llmexp.record.result import read_samples

Sample = Mapping[str, float]
# A quiet machine's services take under 0.1 core; one busy process gets half a core even where it must share with a rank.
OTHER_CORES = 0.25
# Less, of whoever else took cores, is not worth a word.
NAMED_CORES = 0.05
# Bits of NVML's throttle reasons that mean less than the card can do; being idle, a clock that was set and the default power cap do not.
THROTTLES = {0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat, by hardware", 0x80: "power brake"}
POWER_CAP = 0x04


@dataclass(frozen=True)
class Machine:
    """Samples that fall into a measured window, each with the seconds of it that it tells of; the host's cores, and those that ranks compute with."""

    samples: Sequence[tuple[Sample, float]]
    cores: int
    wanted_cores: int
    name: str = ""
    """Of one machine of several; it stands before what is said of it."""

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
    windows = [window for samples in ranks for window in _window_unix_s(samples)]
    told = [(sample, _overlap_s(sample, windows)) for sample in read_json_lines(system)]
    return Machine([(sample, seconds) for sample, seconds in told if seconds > 0], cores, wanted_cores)


def disturbances(machine: Machine) -> list[str]:
    """Say with figures what kept the ranks from the hardware; empty where nothing did."""
    said = [*_host(machine), *(reason for index in _own_gpus(machine) for reason in _gpu(machine, index))]
    return [f"{machine.name}: {reason}" if machine.name else reason for reason in said]


def _host(machine: Machine) -> Iterator[str]:
    other, stolen = machine.other_cores or 0.0, machine.stolen_cores
    spare = machine.cores - machine.wanted_cores
    if other + stolen > spare + OTHER_CORES:
        load = max(sample.get("load_average_1m", 0.0) for sample, _ in machine.samples)
        takers = {"other processes": other, "the hypervisor": stolen}
        took = " and ".join(f"{taker} took {cores:.2f}" for taker, cores in takers.items() if cores >= NAMED_CORES)
        yield f"contention: {took} of {machine.cores} cores while the ranks compute with {machine.wanted_cores} (load average up to {load:.1f})"


def _own_gpus(machine: Machine) -> list[int]:
    """GPUs with a process of the run; all of them where NVML could not tell whose processes are where."""
    keys = {key for sample, _ in machine.samples for key in sample}
    indices = sorted({int(key.split("_")[1]) for key in keys if key.startswith("gpu_")})
    own = [index for index in indices if any(sample.get(f"gpu_{index}_own_processes") for sample, _ in machine.samples)]
    return own or indices


def _gpu(machine: Machine, index: int) -> Iterator[str]:
    samples = [{key.removeprefix(f"gpu_{index}_"): value for key, value in sample.items()} for sample, _ in machine.samples]
    others = max(sample.get("other_processes", 0) if sample.get("own_processes") else 0 for sample in samples)
    if others:
        yield f"contention: {others:.0f} other processes on GPU {index}"
    for bit, name in THROTTLES.items():
        throttled = sum(_has(sample, bit) for sample in samples)
        if throttled:
            hottest = max(sample.get("temperature_celsius", 0) for sample in samples)
            yield f"GPU {index} throttled ({name}) in {throttled} of {len(samples)} samples, up to {hottest:.0f} °C"
    lowered = [sample for sample in samples if _has(sample, POWER_CAP) and _cap_watts(sample) < _cap_watts(sample, "default_")]
    if lowered:
        cap, default = _cap_watts(lowered[0]), _cap_watts(lowered[0], "default_")
        yield f"GPU {index} throttled (power cap lowered to {cap:.0f} W from {default:.0f} W) in {len(lowered)} of {len(samples)} samples"


def _cap_watts(sample: Sample, kind: Literal["", "default_"] = "") -> float:
    return sample.get(f"power_cap_{kind}watts", 0.0)


def _has(sample: Sample, bit: int) -> bool:
    return bool(int(sample.get("throttle_reasons", 0)) & bit)


def _window_unix_s(path: Path) -> Iterator[tuple[float, float]]:
    """Begin and end of a rank's measured window in Unix time: its last line is written as its last step ends."""
    samples = read_samples(path)
    measured = [sample for sample in samples if not sample.warmup]
    if measured:
        origin_s = path.stat().st_mtime - samples[-1].t_end_s
        yield origin_s + measured[0].t_start_s, origin_s + measured[-1].t_end_s


def _overlap_s(sample: Sample, windows: Sequence[tuple[float, float]]) -> float:
    end_s = sample["at_s"]
    begin_s = end_s - sample.get("interval_s", 0.0)
    return sum(max(0.0, min(end_s, end) - max(begin_s, begin)) for begin, end in windows)
