from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric, ResultPoint, RunStatus
from llmexp.report.row import read_row
from llmexp.report.table import build_report
from llmexp.report.text import markdown
from llmexp.training.largest_batch import next_trial, points_of, settled, with_batch
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.report.searched_batch import search_note
from llmexp.training.report.searched_batch_plot import draw_search

Search = Callable[..., RunFolder]


@pytest.fixture(autouse=True)
def _from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin searches at 1, whatever the plan's arithmetic says of the tiny model."""
    monkeypatch.setattr("llmexp.training.largest_batch.first_batch", lambda plan: 1)


@pytest.fixture
def searched(tmp_path: Path, tiny_plan: Callable[..., TrainingPlan], result_of) -> Search:
    """Write a run that searched on a device that holds `limit` samples; `speed` gives tokens/s by batch and try."""

    def write(limit: int, speed: Callable[[int, int], float], repeats: Metric | None = None, **batch) -> RunFolder:
        plan = tiny_plan("F", batch__micro="max", **{f"batch__{name}": value for name, value in batch.items()})
        trials = []
        while trial := next_trial(plan, trials):
            micro = trial.batch.micro
            tries = sum(one.batch.micro == micro for one in trials)
            values = {
                "tokens_per_s": Metric(mean=speed(micro, tries)),
                "peak_rss_bytes": Metric(mean=4e8 + 1e7 * micro),
            }
            fits = micro <= limit
            trials.append(result_of(trial, "success" if fits else "oom", metrics=values if fits else {}))
        plan, points = settled(plan, trials), points_of(trials)
        folder = RunFolder(tmp_path / "main" / plan.folder_name)
        folder.write(folder.plan_path, plan)
        status, own = ("success", {"tokens_per_s": repeats or Metric(mean=500.0)}) if limit else ("oom", {})
        folder.write(folder.result_path, result_of(plan, status, metrics=own, points=points))
        return folder

    return write


def steady(micro: int, tries: int) -> float:
    return 100.0 * micro * (1 + 0.001 * tries)


def test_the_note_says_what_fits_and_that_more_would_pay(searched):
    three = Metric(mean=700.0, std_between_repeats=1.0, n=3)
    note = search_note(read_row(searched(7, steady, three)))
    assert note.startswith("searched for the largest batch: 7 a rank fits (2 of 2 tries), 8 does not; ")
    assert "fastest of 5 batches tried: 7 at 700 tokens/s" in note
    assert "from 2 to 7 each doubling brought +100.1% tokens/s" in note
    assert note.endswith("a device with more memory would be faster")


def test_where_speed_no_longer_grows_more_memory_would_not_pay(searched):
    three = Metric(mean=100.0, std_between_repeats=0.1, n=3)
    note = search_note(read_row(searched(9, lambda micro, tries: 100.0 - 0.1 * micro + 0.01 * tries, three)))
    assert "fastest of 5 batches tried: 1 at 99.9 tokens/s, 9 at 99.1" in note
    assert note.endswith("more memory would hardly be faster")


def test_with_two_trials_alone_it_cannot_be_told(searched):
    note = search_note(read_row(searched(9, lambda micro, tries: 100.0 + 30 * tries)))
    assert note.endswith("what a doubling between 4 and 9 brings cannot be told from so few trials")


def test_where_the_border_lies_in_the_interval_it_cannot_be_told(searched):
    three = Metric(mean=100.0, std_between_repeats=3.0, n=3)
    note = search_note(read_row(searched(8, lambda micro, tries: 100.0 + micro + tries, three)))
    assert "from 4 to 8 each doubling brought +4.3% tokens/s (" in note
    assert note.endswith("whether a further doubling brings 5% is unclear from these trials")


def test_a_batch_above_the_one_found_is_not_called_fastest(searched):
    folder = searched(6, steady)
    result = folder.result()
    lucky = ResultPoint(
        params={"batch_micro": 7}, metrics={"tokens_per_s": Metric(mean=1e6)}, verdicts=result.points[0].verdicts
    )
    folder.write(folder.result_path, result.model_copy(update={"points": [*result.points, lucky]}))
    assert "6 at 600 tokens/s" in search_note(read_row(folder))


def test_the_end_that_was_set_is_told(searched):
    assert "4 a rank fits (2 of 2 tries), larger ones were not asked for" in search_note(
        read_row(searched(100, steady, largest=4))
    )


def test_the_table_has_the_batch_and_the_note(searched):
    table = markdown(build_report([searched(7, steady)]))
    assert "batch max a rank" in table
    assert "| 7 (" in table
    assert "searched for the largest batch: 7 a rank fits" in table


def test_several_searches_are_a_table_of_their_own(searched):
    report = build_report([searched(7, steady), searched(9, steady, fits=3)])
    table = markdown(report)
    assert "the searches for the largest batch a rank" in table
    assert "searched for the largest batch: " not in table
    (section,) = report.sections
    columns = {column.header: column.cells for column in section.tables[0].columns}
    assert (columns["largest batch"], columns["too large"]) == (("7", "9"), ("8", "10"))


def test_where_nothing_fits_the_table_says_so(searched):
    table = markdown(build_report([searched(0, steady)]))
    assert "not even 1 sample a rank fits" in table


def test_a_search_that_a_trial_broke_off_claims_nothing(searched):
    """Three trials ended; the fourth was killed, so that the run was too."""
    folder = searched(7, steady)
    plan, result = TrainingPlan.read(folder.plan_path), folder.result()
    unfinished = {"status": RunStatus.KILLED, "reason": "trial 4", "metrics": {}, "points": result.points[:3]}
    folder.write(folder.plan_path, with_batch(plan, 1))
    folder.write(folder.result_path, result.model_copy(update=unfinished | {"batch": with_batch(plan, 1).batch}))
    assert search_note(read_row(folder)) == "the search for the largest batch has not ended: 4 a rank fitted"
    report = build_report([folder, searched(9, steady, fits=3)])
    (section,) = report.sections
    columns = {column.header: column.cells for column in section.tables[0].columns}
    assert columns["largest batch"] == ("not ended", "9")


def test_a_given_batch_has_no_note(make_run):
    assert search_note(read_row(make_run("F", batch__micro=4))) == ""


def test_the_picture_shows_what_fitted_and_what_did_not(searched, tmp_path, monkeypatch):
    from llmexp.report.picture import new_figure

    drawn = []
    monkeypatch.setattr(
        "llmexp.training.report.searched_batch_plot.new_figure",
        lambda *words: drawn.append(new_figure(*words)) or drawn[-1],
    )
    draw_search(read_row(searched(7, steady)), tmp_path / "search.png")
    assert (tmp_path / "search.png").stat().st_size
    speed, memory = drawn[0].axes
    lines = {line.get_label(): line for line in speed.get_lines()}
    assert lines["fitted"].get_xdata().tolist() == [1, 2, 4, 6, 7, 7]
    assert list(lines["out of memory"].get_xdata()) == [8, 8]
    assert "process memory (GB a rank)" in memory.get_ylabel()


def test_the_page_has_a_chart_of_the_trials(searched):
    charts = {chart.title: chart for chart in build_report([searched(7, steady)]).sections[0].charts}
    speed = charts["Throughput over the batches tried"].traces[0]
    assert list(speed.x) == [1, 2, 4, 6, 7]
    assert speed.y[0] == pytest.approx(50.0)
    assert "Memory over the batches tried (process memory)" in charts
