import pytest
from matplotlib.image import imread
from matplotlib.text import Text

from llmexp.errors import RecordError
from llmexp.record.breakdown import RunBreakdown
from llmexp.record.result import Metric, Stability
from llmexp.report.breakdown import plot
from llmexp.report.breakdown.parts import Profiled
from llmexp.report.plots import draw_report, draw_run
from llmexp.report.table import build_report

METHODS = [f"{prefix}{zero}" for prefix in ("", "F+", "R+", "F+R+") for zero in ("Z1", "Z2", "Z2+O", "Z3", "Z3+O")]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_a_bar_a_run_with_the_papers_values_and_endings(make_run, figures, tmp_path):
    measured = {"tokens_per_s": Metric(mean=7000.0, std_between_repeats=50.0, n=3), "peak_allocated_bytes": 60e9}
    paper = {"model__name": "7b", "hardware__name": "a800"}
    folders = [
        make_run("Naive", metrics=measured, **paper),
        make_run("F", "oom", **paper),
        make_run("R", "timeout", **paper),
    ]
    draw_report(build_report(folders), tmp_path / "figures" / "report.png")
    speed, memory = figures[0].axes
    assert "7b, on a800" in figures[0].get_suptitle()
    assert speed.get_xlabel() == "tokens/s"
    assert memory.get_xlabel() == "peak allocated (GB a rank)"
    assert [label.get_text() for label in speed.get_yticklabels()] == ["Naive", "F", "R"]
    assert texts(speed) == ["7,000", "out of memory", "timeout"]
    assert [bar.get_width() for bar in speed.patches] == [7000, 0, 0]
    assert [list(line.get_xdata()) for line in speed.lines if line.get_marker() == "D"] == [[7488.3, 7694.1, 7236.8]]
    assert imread(tmp_path / "figures" / "report.png").shape[1] == 1260


def test_an_unstable_bar_is_marked_and_the_reason_stands_below_the_panels(make_run, figures, tmp_path):
    judged = Stability(verdict="unstable", reasons=["contention: a hog took much of the machine", "noise: wide"] * 5)
    draw_report(
        build_report(
            [make_run(metrics={"tokens_per_s": 5.0}, stability=judged), make_run("F", metrics={"tokens_per_s": 6.0})]
        ),
        tmp_path / "a.png",
    )
    figure = figures[0]
    assert texts(figure.axes[0]) == ["5.0 !", "6.0"]
    note = next(text for text in figure.findobj(Text) if text.get_text().startswith("!"))
    assert note.get_text().startswith("! Naive unstable: contention: a hog")
    assert note.get_window_extent().y1 < figure.axes[0].xaxis.label.get_window_extent().y0
    assert note.get_window_extent().x1 < figure.bbox.x1


def test_bars_that_cannot_be_judged_are_marked_too_and_share_one_note(make_run, figures, tmp_path):
    judged = Stability(verdict="unknown", reasons=["too few steps"])
    runs = [
        make_run(method, metrics={"tokens_per_s": speed}, stability=judged)
        for method, speed in (("Naive", 5.0), ("F", 6.0))
    ]
    draw_report(build_report([*runs, make_run("R", metrics={"tokens_per_s": 7.0})]), tmp_path / "a.png")
    assert texts(figures[0].axes[0]) == ["5.0 ?", "6.0 ?", "7.0"]
    notes = [text.get_text() for text in figures[0].findobj(Text) if text.get_text().startswith("?")]
    assert notes == ["? Naive, F stability unknown: too few steps"]


def test_of_more_runs_than_anybody_reads_the_first_are_drawn(make_run, figures, tmp_path, monkeypatch):
    monkeypatch.setattr("llmexp.report.plots.MOST_BARS", 2)
    report = build_report(
        [
            make_run(method, metrics={"tokens_per_s": speed})
            for method, speed in (("Naive", 5.0), ("F", 6.0), ("R", 7.0))
        ]
    )
    draw_report(report, tmp_path / "a.png")
    assert texts(figures[0].axes[0]) == ["5.0", "6.0"]
    assert figures[0].get_suptitle().endswith("\nthe first 2 of 3 runs; the table has all")


@pytest.mark.parametrize("count", [0, 1, 20])
def test_no_text_overlaps_another_or_leaves_the_picture(make_run, figures, tmp_path, count):
    metrics = {"tokens_per_s": Metric(mean=123456.7, std_within_run=9e3), "training_state_bytes": 1e9}
    draw_report(
        build_report([make_run(method, metrics=metrics) for method in METHODS[:count]]), tmp_path / "report.png"
    )
    figure = figures[0]
    for axes in figure.axes:
        labels = [*axes.texts, *axes.get_yticklabels()] if axes is figure.axes[0] else axes.texts
        boxes = [text.get_window_extent() for text in labels if text.get_text()]
        assert all(figure.bbox.containsx(box.x0) and figure.bbox.containsx(box.x1) for box in boxes)
        assert not [1 for number, box in enumerate(boxes) for other in boxes[:number] if box.overlaps(other)]


def test_one_runs_loss_and_step_time(make_run, write_samples, figures):
    folder = make_run("F+R")
    for repeat in (folder.repeat(0), folder.repeat(1)):
        write_samples(repeat, 0, [(5.0, 6.0), (1.0, 5.0), (1.0, 4.0), (1.0, 3.0)])
        write_samples(repeat, 1, [(5.0, 7.0), (2.0, 6.0), (2.0, 5.0)])
    draw_run(folder)
    assert sorted(path.name for path in folder.figures.iterdir()) == ["loss.png", "step_time.png"]
    loss, step_time = (figure.axes[0] for figure in figures)
    assert figures[0].get_suptitle() == "tiny F+R on cpu, 2 ranks"
    # The mean over ranks, and the slowest rank, as far as both have come.
    assert [list(line.get_ydata()) for line in loss.lines] == [[6.5, 5.5, 4.5]] * 2
    assert [list(line.get_ydata()) for line in step_time.lines] == [[5.0, 2.0, 2.0]] * 2
    assert step_time.get_ylim() == (0, 2.5)
    assert step_time.get_title(loc="left") == "cut off: the first step, 5.00 s"
    assert [text.get_text() for text in figures[0].legends[0].texts] == [
        "repeat 0, mean over ranks",
        "repeat 1, mean over ranks",
        "warm-up",
    ]


def test_the_parts_of_each_phase_lie_side_by_side_from_zero(tmp_path, monkeypatch):
    made, create = [], plot.new_figure
    monkeypatch.setattr(plot, "new_figure", lambda *words: made.append(create(*words)) or made[-1])
    found = profiled(forward={"QKV": 30, "Up": 10}, backward={"Up": 20})
    plot.draw_breakdowns([Profiled("F", found)], "a title", tmp_path / "modules.png")
    (axes,) = made[0].axes
    spans = [[(box.x0, box.x1) for box in (path.get_extents() for path in row.get_paths())] for row in axes.collections]
    assert spans == [[(0, 30), (30, 40), (40, 45)], [(0, 20), (20, 25)]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["F: forward", "F: backward"]
    assert axes.get_xlim()[0] == 0 < 45 < axes.get_xlim()[1]
    (legend,) = made[0].legends
    named = zip(legend.get_texts(), legend.get_patches(), strict=True)
    shown = {text.get_text(): patch.get_facecolor() for text, patch in named}
    drawn = [[tuple(color) for color in row.get_facecolors()] for row in axes.collections]
    assert drawn == [[shown["QKV"], shown["Up"], shown["idle"]], [shown["Up"], shown["idle"]]]
    assert len(set(shown.values())) == 3


def profiled(**phases):
    """A step of one rank whose phases have modules of so many milliseconds, and 5 ms idle each."""
    ms = 1_000_000
    shares = [
        {"phase": name, "time_ns": (sum(parts.values()) + 5) * ms, "compute_ns": sum(parts.values()) * ms}
        | {"communication_ns": 0, "copy_ns": 0, "idle_ns": 5 * ms, "gemm_ns": 0}
        for name, parts in phases.items()
    ]
    modules = [
        {"phase": phase, "path": (name,), "recomputed": False, "exclusive_ns": time * ms, "work_ns": time * ms}
        | {"gemm_ns": 0, "pieces": 1}
        for phase, parts in phases.items()
        for name, time in parts.items()
    ]
    sums = {name: sum(share[name] for share in shares) for name in ("compute_ns", "idle_ns")}
    zeros = ("exposed_communication_ns", "exposed_copy_ns", "idle_late_ns", "idle_queued_ns", "communication_ns")
    rank = {"source": "rank0.json", "on_device": False, "steps": 1, "window_ns": sum(sums.values()), **sums}
    rank |= dict.fromkeys((*zeros, "copy_ns"), 0) | {"idle_unexplained_ns": sums["idle_ns"], "kernels": []}
    return RunBreakdown.model_validate({"repeat": 0, "ranks": [rank | {"phases": shares, "modules": modules}]})


def test_a_run_that_took_no_step_has_no_picture(make_run):
    folder = make_run(status="failed")
    (folder.repeat(0)).mkdir(parents=True)
    draw_run(folder)
    assert not folder.figures.exists()


@pytest.mark.parametrize(("suffix", "begin"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_suffix_chooses_the_format(make_run, tmp_path, suffix, begin):
    path = tmp_path / f"report.{suffix}"
    draw_report(build_report([make_run(metrics={"tokens_per_s": 1.0})]), path)
    assert path.read_bytes().startswith(begin)


def test_another_format_is_refused_with_the_choices(make_run, tmp_path):
    with pytest.raises(RecordError, match="cannot be written as 'bmp': choices are png, svg, pdf"):
        draw_report(build_report([make_run()]), tmp_path / "report.bmp")


def test_a_diverged_loss_leaves_a_gap(make_run, write_samples, figures):
    folder = make_run()
    write_samples(folder.repeat(0), 0, [(1.0, 6.0), (1.0, float("nan")), (1.0, 5.0)])
    draw_run(folder)
    assert [str(value) for value in figures[0].axes[0].lines[0].get_ydata()] == ["6.0", "nan", "5.0"]


def test_without_matplotlib_one_line_says_so(make_run, monkeypatch, tmp_path):
    monkeypatch.setattr("llmexp.report.picture.find_spec", lambda name: None)
    with pytest.raises(RecordError, match="matplotlib is not installed here"):
        draw_report(build_report([make_run()]), tmp_path / "report.png")
