import csv
import io

import pytest
from matplotlib.image import imread

from llmexp.record.result import Metric, Stability
from llmexp.report.plots import draw_report
from llmexp.report.table import build_report
from llmexp.report.text import comma_separated

# (ranks, passes): tokens/s. A batch of 2 a rank and pass; 4 ranks with one pass belong to both series.
RATES = {(1, 1): 100.0, (2, 1): 180.0, (4, 1): 320.0, (1, 4): 110.0, (2, 2): 200.0}


@pytest.fixture
def scaled(make_run):
    def make(method="Naive", **changes):
        return [
            make_run(
                method,
                metrics={"tokens_per_s": rate},
                parallelism__dp=ranks,
                batch={"micro": 2, "accumulation": passes},
                **changes,
            )
            for (ranks, passes), rate in RATES.items()
        ]

    return make


def shown(*runs):
    found = {column.header: list(column.cells) for column in build_report(runs).sections[0].columns}
    return [found.get(f"{kind} scaling %") for kind in ("weak", "strong", "paper")]


def said(*runs):
    return "\n".join(build_report(runs).sections[0].legend)


def test_weak_keeps_the_batch_of_a_rank_and_strong_the_global_one(scaled):
    weak, strong, paper = shown(*scaled())
    assert weak == ["100", "90.0", "80.0", "", ""]
    assert strong == ["", "", f"{100 * 320 / 440:.1f}", "100", f"{100 * 200 / 220:.1f}"]
    assert paper is None


def test_csv_has_the_same_as_shares(scaled):
    rows = list(csv.DictReader(io.StringIO(comma_separated(build_report(scaled())))))
    assert [row["weak_scaling_efficiency"] for row in rows] == ["1.0", "0.9", "0.8", "", ""]
    assert float(rows[2]["strong_scaling_efficiency"]) == pytest.approx(320 / 440)


def test_only_measured_runs_of_otherwise_equal_work_make_a_series(make_run):
    one, two = (make_run(metrics={"tokens_per_s": 10.0}, parallelism__dp=ranks) for ranks in (1, 2))
    other = make_run("F", metrics={"tokens_per_s": 10.0}, parallelism__dp=4)
    unfinished = make_run(status="oom", parallelism__dp=8)
    assert shown(one, other, unfinished) == [None, None, None]
    assert shown(two, one, other, unfinished)[0] == ["50.0", "100", "", ""]


def test_the_legend_says_what_is_not_the_same_work(scaled, make_run):
    assert "their losses are not from the same training" in said(*scaled())
    assert "measure.threads_per_rank=1 gives each rank one" in said(*scaled())
    assert "measure.threads_per_rank=1 gives each rank one" not in said(*scaled(measure__threads_per_rank=1))
    assert "passes of different sizes" not in said(*scaled())
    passes = [
        make_run(metrics={"tokens_per_s": 5.0}, parallelism__dp=ranks, batch={"micro": 4 // ranks, "accumulation": 1})
        for ranks in (1, 2)
    ]
    assert "strong scaling over passes of different sizes" in said(*passes)


def test_the_papers_figure_stands_beside_eight_gpus_of_weak_scaling(make_run, figures, tmp_path):
    def run(ranks, hardware):
        setting = {
            "model__name": "7b",
            "hardware__name": hardware,
            "parallelism__dp": ranks,
            "batch": {"micro": 2, "accumulation": 1},
        }
        return make_run("Q", metrics={"tokens_per_s": 100.0 * ranks}, **setting)

    runs = [run(ranks, hardware) for hardware in ("rtx4090", "rtx3090", "a800") for ranks in (1, 8)]
    assert shown(*runs)[2] == ["", "90.8", "", "85.9 (2)", "", ""]
    assert build_report(runs).sections[0].notes[1].startswith("paper, figure 4: doubt:")
    assert "figure 4" in said(*runs)
    draw_report(build_report(runs), tmp_path / "report.png")
    diamonds = [line for line in figures[-1].axes[1].lines if line.get_marker() == "D"]
    assert [(*line.get_xdata(), *line.get_ydata()) for line in diamonds] == [(8, 90.8), (8, 85.9)]
    assert shown(runs[1]) == [None, None, None], "alone it scales from nothing"


def test_a_line_a_series_over_ranks(scaled, figures, tmp_path):
    written = draw_report(build_report(scaled()), tmp_path / "report.png")
    assert [path.name for path in written] == ["report.png", "report_scaling.png"]
    assert imread(written[1]).shape[1] == 1260
    speed, share = figures[-1].axes
    weak, lossless = speed.lines[:2]
    assert (list(weak.get_xdata()), list(weak.get_ydata())) == ([1, 2, 4], [100, 180, 320])
    assert list(lossless.get_ydata()) == [100, 200, 400]
    assert list(share.lines[0].get_ydata()) == pytest.approx([100, 90, 80])
    told = [text.get_text() for text in figures[-1].legends[0].texts]
    assert [words.partition(":")[0] for words in told] == ["weak", "strong"]


def test_points_have_the_intervals_and_signs_of_their_runs(make_run, figures, tmp_path):
    bad = Stability(verdict="unstable", reasons=["noise: wide"])
    rates = {ranks: Metric(mean=100.0 * ranks, std_between_repeats=3.0, n=3) for ranks in (1, 2)}
    runs = [
        make_run(metrics={"tokens_per_s": rate}, parallelism__dp=ranks, stability=bad if ranks == 2 else None)
        for ranks, rate in rates.items()
    ]
    section = build_report(runs).sections[0]
    draw_report(build_report(runs), tmp_path / "report.png")
    speed, share = figures[-1].axes
    assert [len(axes.collections[0].get_segments()) for axes in (speed, share)] == [2, 1]
    assert [text.get_text() for axes in (speed, share) for text in axes.texts] == ["!", "!"]
    chart = next(chart for chart in section.charts if chart.name == "scaling_efficiency_over_ranks")
    assert list(chart.traces[0].labels) == ["", "!"]
    assert chart.traces[0].intervals[0] is None
    assert chart.traces[0].intervals[1][0] < 100 < chart.traces[0].intervals[1][1]
