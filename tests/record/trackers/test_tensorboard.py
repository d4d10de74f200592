"""What TensorBoard's own reader finds in the event files."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.record.trackers.content import read
from llmexp.record.trackers.points import Point
from llmexp.record.trackers.run_tracker import TrackedRun, tracked_run
from llmexp.record.trackers.tensorboard import TENSORBOARD


@pytest.fixture
def write(tmp_path: Path):
    """Write a run, and return TensorBoard's reader of it, with the run's name there."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def write(run: TrackedRun):
        folder = tmp_path / "written"
        folder.mkdir()
        TENSORBOARD.write(run, folder)
        (file,) = folder.rglob("events.out.tfevents.*")
        accumulator = EventAccumulator(str(file.parent))
        accumulator.Reload()
        return accumulator, file.parent.relative_to(folder).as_posix()

    return write


def test_curves_have_their_steps_and_the_times_at_which_they_happened(make_run, write):
    run = tracked_run(read(make_run(repeats=2)), "mine")
    events, _ = write(run)
    assert {"repeat.0/loss", "repeat.1/tokens_per_s", "system/cpu_utilization_percentage"} <= {
        *events.Tags()["scalars"]
    }
    loss = events.Scalars("repeat.0/loss")
    assert [(one.step, one.value) for one in loss] == [(n, pytest.approx(6 - 0.1 * n)) for n in range(25)]
    times_s = [point.at_ms / 1e3 for point in run.points if point.name == "repeat.0/loss"]
    assert [one.wall_time for one in loss] == times_s
    (final,) = events.Scalars("tokens_per_s")
    assert (final.value, final.wall_time) == (7000.0, run.window.end_s)
    assert events.FirstEventTimestamp() == run.window.start_s


def session(events, kind: str):
    from tensorboard.plugins.hparams import metadata

    parse = getattr(metadata, f"parse_session_{kind}_info_plugin_data")
    return parse(events.PluginTagToContent("hparams")[f"_hparams_/session_{kind}_info"])


@pytest.mark.parametrize(("status", "ended"), [("success", 1), ("oom", 1), ("failed", 2)])
def test_runs_are_compared_by_their_parameters(make_run, write, status, ended):
    run = tracked_run(read(make_run("F", status=status)), "mine")
    events, _ = write(run)
    begun = session(events, "start")
    found = begun.hparams
    assert (found["method"].string_value, found["batch.micro"].number_value) == ("F", 2)
    assert found["status"].string_value == status
    assert (begun.start_time_secs, begun.group_name) == (run.window.start_s, f"main: {run.name} ({run.id})")
    assert session(events, "end").status == ended


def test_the_note_is_a_text_and_figures_are_pictures(make_run, write):
    folder = make_run()
    (folder.figures / "broken.png").write_text("no picture, though it has the name of one")
    events, _ = write(tracked_run(read(folder), "mine"))
    (text,) = events.Tensors("run")
    assert b"**unstable**: drift: a; noise: b" in text.tensor_proto.string_val[0]
    assert events.Tags()["images"] == ["figures/loss"]
    (picture,) = events.Images("figures/loss")
    assert (picture.width, picture.height) == (1, 1)
    assert picture.encoded_image_string == (folder.figures / "loss.png").read_bytes()


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("", "."),
        ("batch.micro=4 seed=1", "batch.micro=4_seed=1"),
        ("model.path=/mine/../my model é", "model.path=_mine_.._my_model_é"),
        ("../..", "_.."),
        ("a" * 300, "a" * 100),
    ],
)
def test_a_run_is_listed_by_the_words_that_tell_it_from_others(make_run, write, words, place):
    assert write(replace(tracked_run(read(make_run()), "mine"), words=words))[1] == place


def test_values_that_are_no_numbers_stay_so(make_run, write):
    odd = [math.nan, math.inf, -math.inf, 1e300]
    points = [Point("repeat.0/loss", value, 1000, step) for step, value in enumerate(odd)]
    run = replace(tracked_run(read(make_run()), "mine"), metrics={"mfu": math.nan}, points=points)
    events, _ = write(run)
    assert math.isnan(events.Scalars("mfu")[0].value)
    nan, *infinite = (one.value for one in events.Scalars("repeat.0/loss"))
    assert math.isnan(nan)
    assert infinite == [math.inf, -math.inf, math.inf]


def test_no_tensorflow_is_looked_for(tmp_path: Path, make_run):
    """A library of that name that is there takes seconds, or memory of GPUs."""
    (tmp_path / "tensorflow.py").write_text("open('imported', 'w')")
    told = {"tracker": "tensorboard", "project": "mine", "scratch": str(tmp_path), "folders": [str(make_run().path)]}
    done = subprocess.run(
        [sys.executable, "-m", "llmexp.record.trackers.writer"],
        input=json.dumps(told),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (done.stdout, done.returncode) == ('["written", ""]\n', 0), done.stderr
    assert not (tmp_path / "imported").exists()
