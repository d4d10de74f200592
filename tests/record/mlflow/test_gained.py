"""What a run that goes on gains, look by look: together it is what the copy at the end has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmexp.record.folder import RunFolder
from llmexp.record.mlflow.gained import Gained
from llmexp.record.plan import RunPlan
from llmexp.record.trackers.content import read
from llmexp.record.trackers.points import Point, Window
from llmexp.tasks.base import TaskSeries

FROM_S = 2_000_000_000.0
WINDOW = Window(FROM_S - 10.0, FROM_S - 10.0)


@pytest.fixture
def written(make_run, write_samples) -> RunFolder:
    """A run of two ranks, whose second one is slower at odd steps, and whose last two steps were profiled."""
    folder = make_run(repeats=2)
    for repeat in folder.repeats():
        for rank in (0, 1):
            steps = [(0.1 + 0.1 * rank * (number % 2), 9.0 - number) for number in range(8)]
            write_samples(repeat, rank, steps, warmup=(0, 1, 6, 7), from_s=FROM_S)
    folder.system_path.write_text(
        "".join(json.dumps({"at_s": FROM_S + 5 * step, "interval_s": 5.0, "cpu": step}) + "\n" for step in range(-3, 3))
    )
    return folder


def gained(folder: RunFolder, known: tuple[str, ...] = ()) -> Gained:
    return Gained(folder, RunPlan.read(folder.plan_path), WINDOW, known)


def growing(paths: list[Path]) -> Iterator[None]:
    """Let files come into being again, by pieces that end anywhere in a line, each file at its own pace."""
    texts = {path: path.read_bytes() for path in paths}
    for path in paths:
        path.write_bytes(b"")
    for part in range(1, 12):
        for number, (path, text) in enumerate(texts.items()):
            path.write_bytes(text[: len(text) * min(10, max(0, part - number % 2)) // 10])
        yield


def of_steps(points: list[Point]) -> list[Point]:
    return [point for point in points if point.name.startswith(("repeat.", "system/"))]


def by_place(points: list[Point]) -> list[Point]:
    return sorted(points, key=lambda point: (point.name, point.step))


def test_look_by_look_it_gains_what_the_copy_at_the_end_has(written: RunFolder) -> None:
    whole = [point for point in of_steps(read(written).points()) if point.at_ms >= 1e3 * WINDOW.start_s]
    assert {point.step for point in whole if point.name == "repeat.1/loss"} == set(range(6))
    assert len({point.at_ms for point in whole if point.name == "repeat.1/loss"}) == 6
    found, looks = [], gained(written)
    for _ in growing([*written.path.glob("repeat.*/samples.*"), written.system_path]):
        found += looks.points()
    system = [point for point in found if point.name == "system/cpu"]
    assert [(point.step, point.value) for point in system] == [(0, -2.0), (1, -1.0), (2, 0.0), (3, 1.0), (4, 2.0)]
    steps = [point for point in found if point not in system]
    assert by_place(steps) == by_place([point for point in whole if not point.name.startswith("system/")])
    assert looks.points() == []


def test_a_step_waits_for_its_slowest_rank(written: RunFolder) -> None:
    late = written.repeat(1) / "samples.1.jsonl"
    text = late.read_text()
    late.unlink()
    looks = gained(written)
    assert not [point for point in looks.points() if point.name.startswith("repeat.1/")]
    late.write_text(text)
    times = {point.step: point.value for point in looks.points() if point.name == "repeat.1/step_time_s"}
    assert times == pytest.approx({step: 0.1 + 0.1 * (step % 2) for step in range(6)})


def test_earlier_repeats_that_the_tracker_has_are_not_sent_again(written: RunFolder) -> None:
    found = gained(written, ("repeat.0/step_time_s", "repeat.1/step_time_s")).points()
    assert {point.name.partition("/")[0] for point in found} == {"repeat.1", "system"}


def test_what_a_task_has_beside_its_samples_comes_once(written: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [(1.2, "server/running", 3.0)]
    monkeypatch.setattr(TaskSeries, "series", lambda self, repeat: told)
    looks = gained(written)
    assert [point.step for point in looks.points() if point.name == "repeat.1/server/running"] == [1]
    told.append((2.0, "server/running", 4.0))
    named = [(point.value, point.at_ms) for point in looks.points() if point.name == "repeat.1/server/running"]
    assert named == [(4.0, round(1e3 * (FROM_S + 2.0)))]
    assert looks.points() == []
