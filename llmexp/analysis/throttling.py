"""Reduced clocks of a run's GPUs, by NVML's counters over the measured windows.

Samples are used where NVML does not count, and for clocks that somebody has locked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean

from llmexp.machine.throttling import HEAT, HEAT_BY_HARDWARE, POWER_BRAKE, POWER_CAP
from llmexp.record.result import SmClock
from llmexp.record.samples import GpuWindow

ThrottlingSample = Mapping[str, float]
# Even clocks that stood still for a hundredth of the window would cost only a fifth of what counts as relevant.
SHARE = 0.01
# These bits of NVML's throttle reasons mean less than the card can do; each has the counters that count the same. Being
# idle, a clock that was set and the default power cap are not among them.
THROTTLES: dict[int, tuple[str, frozenset[str]]] = {
    0x08: ("hardware slowdown", frozenset({HEAT_BY_HARDWARE, POWER_BRAKE})),
    0x20: (HEAT, frozenset({HEAT})),
    0x40: (HEAT_BY_HARDWARE, frozenset({HEAT_BY_HARDWARE})),
    0x80: (POWER_BRAKE, frozenset({POWER_BRAKE})),
}
POWER_CAP_BIT, CLOCK_SET_BIT = 0x04, 0x02
# These bits are being idle for a moment and a clock that was set; any other reason of NVML may move the clock by
# itself.
_NO_OTHER_REASON = 0x01 | CLOCK_SET_BIT
# Below this utilization, in %, a GPU waits, and its clock says little.
_LOADED = 95
# Clocks of all cards come in steps of 15 MHz, and a locked clock may be off by one step.
_STEP_MEGAHERTZ = 15
# Fewer samples may agree by chance.
_SAMPLES = 3
# A data center's card holds its boost clock; GeForce cards run at 80 % or more of the highest clock that NVML reports.
_OF_BOOST, _OF_HIGHEST = 0.9, 0.7


def known_reasons(windows: Sequence[GpuWindow | None]) -> frozenset[str]:
    """Return the reasons that NVML counts on every GPU of the run, for which samples are not needed.

    `windows` are those of all ranks and repeats.
    """
    counted = [frozenset(window.throttled_s) if window else frozenset() for window in windows]
    return frozenset.intersection(*counted) if counted else frozenset()


def counted(windows: Sequence[GpuWindow]) -> Iterator[str]:
    """Say for how long each GPU was throttled, in its worst window, if that is more than SHARE of the window."""
    for index in sorted({window.index for window in windows}):
        own = [window for window in windows if window.index == index]
        for reason in (HEAT, HEAT_BY_HARDWARE, POWER_BRAKE, POWER_CAP):
            share, worst = max(((_share(window, reason), window) for window in own), key=lambda pair: pair[0])
            if share > SHARE:
                lost_s = worst.throttled_s[reason]
                yield (
                    f"GPU {index} throttled ({_named(worst, reason)}) for {lost_s:.1f} of {worst.seconds:.1f} s, "
                    f"{100 * share:.1f} % of the window"
                )


def sampled(index: int, samples: Sequence[ThrottlingSample], known: Collection[str]) -> Iterator[str]:
    """Say in how many samples a GPU was throttled, for reasons that no counter covers."""
    for bit, (name, counters) in THROTTLES.items():
        throttled = 0 if counters <= set(known) else sum(_has(sample, bit) for sample in samples)
        if throttled:
            hottest = max(sample.get("temperature_celsius", 0) for sample in samples)
            yield f"GPU {index} throttled ({name}) in {throttled} of {len(samples)} samples, up to {hottest:.0f} °C"
    caps = [
        (_told(sample, "power_cap_watts"), _told(sample, "power_cap_default_watts"))
        for sample in samples
        if _has(sample, POWER_CAP_BIT)
    ]
    lowered = [pair for pair in caps if pair[0] < pair[1]]
    if lowered and POWER_CAP not in known:
        yield f"GPU {index} throttled ({_lowered(*lowered[0])}) in {len(lowered)} of {len(samples)} samples"


def locked(index: int, samples: Sequence[ThrottlingSample]) -> Iterator[str]:
    """Say that a clock was set below the card's own.

    NVML cannot be asked for locked clocks, so they are recognized by a clock that does not move under load.
    """
    low = [
        sample
        for sample in samples
        if 0 < _told(sample, "application_clock_megahertz") < _told(sample, "application_clock_default_megahertz")
    ]
    if low and all(_clock(sample) <= _told(sample, "application_clock_megahertz") + _STEP_MEGAHERTZ for sample in low):
        clock, default = (_told(low[0], f"application_clock_{kind}megahertz") for kind in ("", "default_"))
        yield f"GPU {index} throttled: application clock set to {clock:.0f} MHz, by default it is {default:.0f} MHz"
    elif stands := _standing_clock(samples):
        clock, full = stands
        yield f"GPU {index} throttled: clocks locked at {clock:.0f} MHz of {full:.0f} MHz"


def sm_clock(name: str, samples: Sequence[ThrottlingSample], windows: Sequence[GpuWindow] = ()) -> SmClock | None:
    """Summarize the SM clock of a GPU over samples inside the windows, and how long its power cap held it down.

    None where no sample has the clock.
    """
    clocks = [sample["sm_clock_megahertz"] for sample in samples if "sm_clock_megahertz" in sample]
    if not clocks:
        return None
    mean, card = round(fmean(clocks), 1), max(_told(sample, "sm_clock_max_megahertz") for sample in samples)
    capped = [
        (window.throttled_s[POWER_CAP] / window.seconds, window.power_cap_w)
        for window in windows
        if POWER_CAP in window.throttled_s and window.seconds > 0
    ]
    share, cap_w = max(capped, default=(None, None))
    return SmClock(
        gpu=name,
        mean_megahertz=mean,
        lowest_megahertz=min(clocks),
        card_megahertz=card or None,
        samples=len(clocks),
        power_cap_watts=cap_w,
        share_at_power_cap=None if share is None else round(min(share, 1.0), 3),
    )


def _standing_clock(samples: Sequence[ThrottlingSample]) -> tuple[float, float] | None:
    """Return the constant clock of a GPU under load and the clock that it should have, in MHz.

    None where the clock moved, is high enough, or NVML names a reason.
    """
    loaded = [
        sample
        for sample in samples
        if _told(sample, "utilization_percentage") >= _LOADED and _clock(sample) and "throttle_reasons" in sample
    ]
    if len(loaded) < _SAMPLES or any(int(sample["throttle_reasons"]) & ~_NO_OTHER_REASON for sample in loaded):
        return None
    clocks, boost, highest = (
        list(map(_clock, loaded)),
        _told(loaded[0], "clock_boost_megahertz"),
        _told(loaded[0], "sm_clock_max_megahertz"),
    )
    full, enough = (boost, _OF_BOOST * boost) if boost else (highest, _OF_HIGHEST * highest)
    moved = max(clocks) - min(clocks) > _STEP_MEGAHERTZ
    return None if moved or max(clocks) >= enough or _as_delivered(loaded[0]) else (fmean(clocks), full)


def _as_delivered(sample: ThrottlingSample) -> bool:
    """Tell whether the card runs at its default application clock, as some cards do until it is raised."""
    default = _told(sample, "application_clock_default_megahertz")
    return _has(sample, CLOCK_SET_BIT) and abs(_clock(sample) - default) <= _STEP_MEGAHERTZ


def _share(window: GpuWindow, reason: str) -> float:
    """Return the throttled share of the window; 0 for a power cap that is the card's default."""
    cap_w, default_w = window.power_cap_w, window.power_cap_default_w
    if window.seconds <= 0 or (reason == POWER_CAP and not (cap_w and default_w and cap_w < default_w)):
        return 0.0
    return window.throttled_s.get(reason, 0.0) / window.seconds


def _named(window: GpuWindow, reason: str) -> str:
    return _lowered(window.power_cap_w or 0.0, window.power_cap_default_w or 0.0) if reason == POWER_CAP else reason


def _lowered(cap_w: float, default_w: float) -> str:
    return f"power cap lowered to {cap_w:.0f} W from {default_w:.0f} W"


def _clock(sample: ThrottlingSample) -> float:
    return _told(sample, "sm_clock_megahertz")


def _told(sample: ThrottlingSample, name: str) -> float:
    return sample.get(name, 0.0)


def _has(sample: ThrottlingSample, bit: int) -> bool:
    return bool(int(sample.get("throttle_reasons", 0)) & bit)
