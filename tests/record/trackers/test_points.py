import math
from collections import Counter
from types import SimpleNamespace

import pytest

from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.predicted import Prediction
from llmexp.record.trackers.content import read
from llmexp.record.trackers.points import Point, RateOverTime, Window, sample_points, series_points, system_points
from llmexp.serving.record.requests import RequestSample
from llmexp.tasks.base import TaskSeries

ALWAYS = Window(0.0, 1e12)


def _values(points: list[Point], name: str) -> dict[int, float]:
    return {point.step: point.value for point in points if point.name == name}


def _of_samples(folder: RunFolder, window: Window = ALWAYS, **measure: int) -> list[Point]:
    plan = RunPlan.read(folder.plan_path)
    changed = plan.config.measure.model_copy(update=measure)
    return list(
        sample_points(
            folder, plan.model_copy(update={"config": plan.config.model_copy(update={"measure": changed})}), window
        )
    )


def test_the_slowest_rank_sets_time_and_rate_and_profiled_steps_are_left_out(make_run):
    points = _of_samples(make_run())
    times = _values(points, "repeat.0/step_time_s")
    assert times == pytest.approx(dict.fromkeys(range(25), 0.2))
    assert _values(points, "repeat.0/tokens_per_s")[7] == pytest.approx(7000)
    assert _values(points, "repeat.0/forward_time_s")[0] == 0.1 / 4


def test_what_was_predicted_stands_beside_what_was_measured(make_run):
    folder = make_run()
    plan = RunPlan.read(folder.plan_path)
    assert not _values(read(folder).finals(), "x_predicted")
    predicted = Prediction(rate=1000.0, low=900.0, high=1100.0, held_out_runs=1, source="", parts_s={})
    folder.write(folder.plan_path, plan.model_copy(update={"predicted": predicted}))
    measured = folder.result().metrics["tokens_per_s"].mean
    assert _values(read(folder).finals(), "x_predicted") == {0: pytest.approx(measured / 1000)}


def test_every_repeat_has_its_own_curves(make_run):
    names = {point.name for point in _of_samples(make_run(repeats=2))}
    assert {"repeat.0/loss", "repeat.1/loss"} <= names


def test_tokens_per_s_of_a_step_is_the_global_batch_over_its_time(make_run):
    rates = _values(read(make_run()).points(), "repeat.0/tokens_per_s")
    assert rates[10] == pytest.approx(2 * 2 * 350 / 0.2)


def test_losses_of_a_budget_stand_over_tokens_too(make_run):
    folder = make_run()
    losses = _values(_of_samples(folder), "repeat.0/loss")
    over_tokens = _values(_of_samples(folder, tokens=20_000), "repeat.0/loss_over_tokens")
    assert over_tokens == {1400 * (step + 1): loss for step, loss in losses.items()}
    assert not [point for point in read(folder).points() if "tokens" in point.name and "loss" in point.name]


def test_steps_end_no_later_than_the_run(make_run):
    """A copied folder's files are newer than the run."""
    folder = make_run()
    times = [point.at_ms for point in _of_samples(folder, Window(0.0, 1000.0))]
    assert max(times) <= 1000_000


def test_a_sample_cut_off_by_a_kill_and_a_diverged_loss_are_read(make_run):
    folder = make_run()
    path = folder.repeat(0) / "samples.0.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:6], lines[6].replace('"loss":5.4', '"loss":null'), lines[7][:20]]))
    losses = _values(_of_samples(folder), "repeat.0/loss")
    assert list(losses) == list(range(7))
    assert math.isnan(losses[6])


def test_requests_have_their_rates_over_time():
    """Of 5 s each, an empty one too; the last window is not over."""
    plan = SimpleNamespace(rate="output_tokens_per_s", sample_name="request", amount=0.0)
    rates = RateOverTime("repeat.0", plan)
    ends_s = [1.0, 4.9, 5.0, 16.0, 19.0]
    samples = [_request(index, end_s) for index, end_s in enumerate(ends_s)]
    points = [point for sample in samples for point in rates.add(sample, 1000.0 + sample.t_end_s)]
    assert _values(points, "repeat.0/output_tokens_per_s") == {5: 4.0, 10: 2.0, 15: 0.0}
    assert _values(points, "repeat.0/requests_per_s") == {5: 0.4, 10: 0.2, 15: 0.0}
    assert [point.at_ms for point in points[::2]] == [1_005_000, 1_010_000, 1_015_000]
    known = RateOverTime("repeat.0", SimpleNamespace(rate="tokens_per_s", sample_name="step", amount=350.0))
    assert [point for sample in samples for point in known.add(sample, 0.0)] == []


def _request(index: int, end_s: float) -> RequestSample:
    asked = {"asked_prompt_tokens": 1, "asked_output_tokens": 10, "usage_output_tokens": 10}
    return RequestSample(index=index, warmup=False, t_start_s=0.0, t_end_s=end_s, **asked)


def test_a_repeat_without_samples_has_no_points(make_run):
    folder = make_run()
    for samples in folder.path.glob("repeat.*/samples.*"):
        samples.write_text("")
    assert _of_samples(folder) == []


def test_system_load_of_an_earlier_attempt_is_left_out(tmp_path):
    path = tmp_path / "system.jsonl"
    path.write_text('{"at_s": 5.0, "cpu": 1}\n{"at_s": 15.0, "interval_s": 5.0, "cpu": 2}\n{"at_s": 20.0, "cp')
    assert list(system_points(path, Window(10.0, 20.0))) == [Point("system/cpu", 2.0, 15_000, 0)]
    other = path.rename(tmp_path / "system.1.jsonl")
    assert list(system_points(other, Window(10.0, 20.0))) == [Point("system/node_1/cpu", 2.0, 15_000, 0)]


def test_what_a_task_has_beside_its_samples_stands_under_its_name_at_its_time(make_run, monkeypatch):
    folder = make_run()
    told = [(1.2, "server/running", 3.0), (2.0, "server/resident_bytes", 7.0)]
    monkeypatch.setattr(TaskSeries, "series", lambda self, repeat: told)
    points = list(series_points(folder, RunPlan.read(folder.plan_path), ALWAYS))
    named = {(point.name, point.value, point.step) for point in points}
    assert named == {("repeat.0/server/running", 3, 1), ("repeat.0/server/resident_bytes", 7, 2)}
    assert points[-1].at_ms - points[0].at_ms == 800
    assert {point.name for point in points} <= {point.name for point in read(folder).points()}


def test_the_times_of_what_stands_beside_samples_stay_while_a_run_goes_on(make_run, write_samples, monkeypatch):
    """A clock that is set meanwhile moves nothing that was sent."""
    folder = make_run()
    monkeypatch.setattr(TaskSeries, "series", lambda self, repeat: [(1.0, "server/running", 3.0)])
    plan, samples = RunPlan.read(folder.plan_path), folder.repeat(0) / "samples.0.jsonl"
    write_samples(folder.repeat(0), 0, [(1.0, 5.0)] * 3, from_s=4e9)
    early = list(series_points(folder, plan, ALWAYS))
    text = samples.read_text()
    write_samples(folder.repeat(0), 0, [(1.0, 5.0)] * 3, from_s=4e9 + 0.5)
    samples.write_text(text + samples.read_text())
    assert [point.at_ms for point in early] == [4_000_000_001_000]
    assert list(series_points(folder, plan, ALWAYS)) == early


def test_curves_come_before_single_values_where_prefixes_are_sorted(make_run, profiled_steps):
    """As on MLflow's page of a run, which shows metrics without a prefix last."""
    folder = make_run()
    folder.write(folder.breakdown_path, profiled_steps)
    names = [point.name for point in read(folder).points()]
    steps = Counter(names)
    prefixes = sorted({name.partition("/")[0] for name in names if "/" in name} - {"system"})
    assert prefixes[0] == "repeat.0"
    assert min(steps[name] for name in names if name.startswith("repeat.0/")) > 1
    assert {steps[name] for name in names if name.startswith("step_profile/")} == {1}
