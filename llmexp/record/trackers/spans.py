"""What a run's traces show: some of a server's requests of its first repeat, and the mean profiled step of a training.

This module only reads files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from llmexp.record.breakdown import read_breakdown
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.samples import Sample, origin_unix_s, read_samples
from llmexp.record.spans import TimeSpan
from llmexp.record.step_span import step_span
from llmexp.record.trackers.points import Window
from llmexp.registry import get_task


def spans_of(folder: RunFolder, plan: RunPlan, window: Window) -> list[TimeSpan]:
    """Return the pieces of work, in Unix seconds; raises what reading a damaged folder raises."""
    return [*_told_by_task(folder, plan), *_profiled(folder, window)]


def _told_by_task(folder: RunFolder, plan: RunPlan) -> Iterator[TimeSpan]:
    task = get_task(plan.config.task.name)
    for repeat in folder.repeats()[:1]:
        samples = repeat / "samples.0.jsonl"
        if samples.exists() and (spans := list(task.spans(repeat, plan))):
            origin_s = _origin_unix_s(samples)
            yield from (span.moved(origin_s) for span in spans)


def _origin_unix_s(path: Path) -> float:
    """Return the Unix time from which a repeat counts, by its first sample where that says its time."""
    with path.open() as lines:
        first = Sample.model_validate_json(next(lines))
    return origin_unix_s(path, [first] if first.at_s is not None else read_samples(path, Sample))


def _profiled(folder: RunFolder, window: Window) -> Iterator[TimeSpan]:
    found = read_breakdown(folder)
    span = step_span(found, window.end_s) if found else None
    if span:
        yield span
