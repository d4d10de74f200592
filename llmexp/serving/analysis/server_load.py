"""What a server was like between two moments, from the samples of its watch; what nobody told is None.

A level between two samples is taken to change evenly. So a page that came late or not at all, as under the highest
load, counts for the time that it left open, and a counter's growth does not depend on when samples fell.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from llmexp.serving.record.server_samples import GpuSample, ServerMetric, ServerSample

LoadSeries = list[tuple[float, float]]
"""Times in seconds, and the values at them."""


@dataclass(frozen=True)
class LoadLevel:
    """A quantity of the moment over a window: its mean over time, and its highest sample."""

    mean: float
    peak: float


@dataclass(frozen=True)
class ServerLoad:
    """A server over a window: requests, tokens, shares from 0 to 1, bytes, watts."""

    running: LoadLevel | None
    waiting: LoadLevel | None
    kv_used_share: LoadLevel | None
    preemptions: float | None
    generated_tokens: float | None
    prompt_tokens: float | None
    prefix_hit_ratio: float | None
    """Prompt tokens found in the cache of prefixes, over those that were looked up."""
    transferred_tokens: float | None
    """Of prompts, whose keys and values came from another server."""
    draft_acceptance_ratio: float | None
    """Accepted over proposed draft tokens: as counted, else the mean of a share that is known to be this one."""
    tokens_per_draft_step: float | None
    """Tokens of output for each pass that verifies a request's drafts: the accepted ones and one of its own."""
    resident_bytes: LoadLevel | None
    """Of the server's processes, added up."""
    cpu_cores: float | None
    """The mean number of cores on which they computed."""
    gpu_memory_bytes: LoadLevel | None
    """Of all GPUs of the server, added up, as is their power."""
    gpu_power_w: LoadLevel | None
    sm_clock_megahertz: LoadLevel | None
    """The mean of the GPUs."""
    pages: int
    """How often the page was read, and how often it could not be."""
    pages_missed: int


def server_load(samples: Sequence[ServerSample], begin_s: float, end_s: float) -> ServerLoad:
    """Return what samples, in the order of their times, tell of a window, which is in seconds of their clock."""
    window = (begin_s, end_s)

    def level(metric: ServerMetric) -> LoadLevel | None:
        return _level(told(samples, metric), window)

    def growth(metric: ServerMetric) -> float | None:
        return _growth(_counted(samples, metric), window)

    inside = [sample for sample in samples if begin_s <= sample.at_s <= end_s]
    computed_s = _growth(cpu_s(samples), window)
    return ServerLoad(
        running=level("running"),
        waiting=level("waiting"),
        kv_used_share=level("kv_used_share"),
        preemptions=growth("preemptions"),
        generated_tokens=growth("generated_tokens"),
        prompt_tokens=growth("prompt_tokens"),
        prefix_hit_ratio=_ratio(growth("prefix_hit_tokens"), growth("prefix_queried_tokens")),
        transferred_tokens=growth("transferred_tokens"),
        draft_acceptance_ratio=_acceptance(samples, window),
        tokens_per_draft_step=_per_step(samples, window),
        resident_bytes=_level(resident_bytes(samples), window),
        cpu_cores=None if computed_s is None else computed_s / (end_s - begin_s),
        gpu_memory_bytes=_level(of_gpus(samples, lambda gpu: gpu.memory_used_bytes), window),
        gpu_power_w=_level(of_gpus(samples, lambda gpu: gpu.power_w), window),
        sm_clock_megahertz=_level(of_gpus(samples, lambda gpu: gpu.sm_clock_megahertz, fmean), window),
        pages=sum(sample.page is not None for sample in inside),
        pages_missed=sum(bool(sample.missed) for sample in inside),
    )


def _acceptance(samples: Sequence[ServerSample], window: tuple[float, float]) -> float | None:
    counted = _ratio(_growth(_counted(samples, "accepted_tokens"), window), _drafted(samples, window))
    share = _level(told(_drafting(samples), "accepted_share"), window)
    return share.mean if share and counted is None else counted


def _per_step(samples: Sequence[ServerSample], window: tuple[float, float]) -> float | None:
    """Return the tokens of a pass; None where nothing was drafted, for all that a server tells."""
    accepted, steps, of_prompts = (
        _growth(_counted(samples, metric), window) for metric in ("accepted_tokens", "draft_steps", "prompt_steps")
    )
    if steps and (accepted or _drafted(samples, window)):
        return 1 + (accepted or 0.0) / (steps - (of_prompts or 0.0))
    length = _level(told(_drafting(samples), "tokens_per_draft_step"), window)
    return length.mean if length else None


def _drafted(samples: Sequence[ServerSample], window: tuple[float, float]) -> float | None:
    return _growth(_counted(samples, "drafted_tokens"), window)


def _drafting(samples: Iterable[ServerSample]) -> list[ServerSample]:
    """Return the samples of a server that told how much it drafts.

    An SGLang that does not yet tell it may count the token that each pass adds by itself as an accepted one.
    """
    return [sample for sample in samples if sample.page and sample.page.get("draft_width", 0.0) > 0]


def told(samples: Iterable[ServerSample], metric: ServerMetric) -> LoadSeries:
    """Return what the server's page said of a metric."""
    return [(sample.at_s, sample.page[metric]) for sample in samples if sample.page and metric in sample.page]


def resident_bytes(samples: Iterable[ServerSample]) -> LoadSeries:
    """Return the memory of the server's processes."""
    return [(sample.at_s, sample.resident_bytes) for sample in samples if sample.resident_bytes is not None]


def cpu_s(samples: Iterable[ServerSample]) -> LoadSeries:
    """Return the CPU seconds of the server's processes."""
    return [(sample.at_s, sample.cpu_s) for sample in samples if sample.cpu_s is not None]


def of_gpus(
    samples: Iterable[ServerSample],
    read: Callable[[GpuSample], float | None],
    joined: Callable[[list[float]], float] = sum,
) -> LoadSeries:
    """Return a quantity of the server's GPUs together, at the times at which all of them told it."""
    found: LoadSeries = []
    for sample in samples:
        values = [value for gpu in sample.gpus if (value := read(gpu)) is not None]
        if values and len(values) == len(sample.gpus):
            found.append((sample.at_s, joined(values)))
    return found


def _level(series: LoadSeries, window: tuple[float, float]) -> LoadLevel | None:
    inside = [value for at_s, value in series if window[0] <= at_s <= window[1]]
    if not inside:
        return None
    cut = _cut(series, window)
    seconds = cut[-1][0] - cut[0][0]
    area = sum((later - earlier) * (was + now) / 2 for (earlier, was), (later, now) in pairwise(cut))
    return LoadLevel(area / seconds if seconds > 0 else fmean(inside), max(inside))


def _growth(series: LoadSeries, window: tuple[float, float]) -> float | None:
    """Return by how much a counter grew; None without a sample inside, or with one sample only."""
    if len(series) < 2 or not any(window[0] <= at_s <= window[1] for at_s, _ in series):
        return None
    cut = _cut(series, window)
    return cut[-1][1] - cut[0][1]


def _cut(series: LoadSeries, window: tuple[float, float]) -> LoadSeries:
    """Return the part of a series within a window, with its values at the window's ends as far as it reaches."""
    begin_s, end_s = max(window[0], series[0][0]), min(window[1], series[-1][0])
    inside = [point for point in series if begin_s < point[0] < end_s]
    return [(begin_s, _at(series, begin_s)), *inside, (end_s, _at(series, end_s))]


def _at(series: LoadSeries, at_s: float) -> float:
    """Return the value at a time from the first sample to the last."""
    after = bisect_left(series, at_s, key=_time_s)
    later_s, now = series[after]
    if later_s == at_s:
        return now
    earlier_s, was = series[after - 1]
    return was + (now - was) * (at_s - earlier_s) / (later_s - earlier_s)


def _time_s(point: tuple[float, float]) -> float:
    return point[0]


def _counted(samples: Iterable[ServerSample], metric: ServerMetric) -> LoadSeries:
    """Return a counter at every page; many servers name one only once it counts, so it was 0 before."""
    pages = [(sample.at_s, sample.page) for sample in samples if sample.page]
    if not any(metric in page for _, page in pages):
        return []
    return _unwrapped([(at_s, page.get(metric, 0.0)) for at_s, page in pages])


def _unwrapped(series: LoadSeries) -> LoadSeries:
    """Return a counter that never falls: where a server began to count anew, it goes on from there."""
    lasting, before = 0.0, 0.0
    found: LoadSeries = []
    for at_s, value in series:
        if value < before:
            lasting += before
        found.append((at_s, lasting + value))
        before = value
    return found


def _ratio(part: float | None, whole: float | None) -> float | None:
    """Return a share; None where nothing was counted."""
    return part / whole if part is not None and whole else None
