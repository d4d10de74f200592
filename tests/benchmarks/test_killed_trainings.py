"""Trainings that are killed: what their log says, that they go on, and that the simulation has their time."""

from __future__ import annotations

import json
from itertools import islice, repeat
from math import inf
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.failures import killed
from benchmarks.failures.killed import Killed, exponential, train_and_kill

STEPS = 40
TRAINER = """
import json, pathlib, sys, time
folder, steps, every = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:])
starts = len(list(folder.glob("start.*")))
(folder / f"start.{starts}").touch()
with (folder / "log.jsonl").open("a") as log:
    print(json.dumps({"event": "ready", "at_s": time.monotonic(), "s": 0.0, "step": starts}), file=log, flush=True)
    while starts < 2:
        time.sleep(60)
    print('{"event": "step", "at_s', file=log)  # as one that was killed leaves it
    for event in ("step", "checkpoint"):
        print(json.dumps({"event": event, "at_s": time.monotonic(), "s": 0.5, "loss": 2.0}), file=log)
"""


def test_starts_and_kills_are_counted_and_a_line_that_was_cut_off_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "trainer.py"
    other.write_text(TRAINER)
    monkeypatch.setattr(killed, "TRAINER", other)
    found = train_and_kill(tmp_path / "run", 1, 1, [1.0, 1.0, inf])
    assert (len(found.gaps_s), found.step_s, found.checkpoint_s, found.loss) == (2, 0.5, 0.5, 2.0)
    assert all(gap_s >= 1.0 for gap_s in found.gaps_s)
    assert sum(found.gaps_s) < found.wall_s


def test_a_training_that_fails_by_itself_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "trainer.py"
    broken.write_text("raise SystemExit('no torch here')")
    monkeypatch.setattr(killed, "TRAINER", broken)
    with pytest.raises(RuntimeError, match="no torch here"):
        train_and_kill(tmp_path / "run", 1, 1, [inf])


def test_kills_come_at_random_with_their_mean() -> None:
    assert fmean(islice(exponential(20.0, seed=1), 5000)) == pytest.approx(20.0, rel=0.05)
    assert list(islice(exponential(20.0, 1), 3)) == list(islice(exponential(20.0, 1), 3))


def test_what_is_replayed_has_the_seconds_of_the_kills() -> None:
    run = Killed(10, 5, wall_s=40.0, step_s=1.0, checkpoint_s=1.0, restart_s=2.0, gaps_s=(9.0, 1.0), loss=0.0)
    # Start 2, five steps, a checkpoint, one step lost; a start of 1; then start 2, five steps, a checkpoint.
    assert run.replayed.whole_s == 9.0 + 1.0 + 8.0
    assert (run.share, run.replayed.share) == (10 / 40, 10 / 18)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return train_and_kill(tmp_path_factory.mktemp("failures") / "undisturbed", STEPS, STEPS, repeat(inf, 1))


@pytest.mark.slow
def test_a_killed_training_goes_on_from_its_last_checkpoint_to_the_same_loss(
    undisturbed: Killed, tmp_path: Path
) -> None:
    # Killed as soon as two checkpoints may be there, however fast the machine is.
    gaps_s = [undisturbed.restart_s + STEPS / 2 * undisturbed.step_s + 3 * undisturbed.checkpoint_s, inf]
    found = train_and_kill(tmp_path / "run", STEPS, 5, gaps_s)
    events = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    starts = [event["step"] for event in events if event["event"] == "ready"]
    assert starts[0] == 0
    assert all(start % 5 == 0 for start in starts)
    assert found.loss == undisturbed.loss
