"""Figure 5: the shares of a decoder layer's modules, as a table and as a picture."""

from __future__ import annotations

import pytest
from matplotlib.image import imread

from llmexp.paper.training.step_times.figure5 import figure5, figure5_table
from llmexp.paper.training.step_times.matching import SWEEP, places
from llmexp.report.plots import draw_report
from llmexp.report.table import build_report

ELSEWHERE = {"model__name": "tiny", "hardware__name": "cpu", "parallelism__dp": 2, "sweep__name": SWEEP}


def found(*folders):
    (place,) = places(build_report(folders).rows)
    return figure5(place)


def test_shares_of_the_papers_own_times_are_the_papers_and_add_up(profiled) -> None:
    figure = found(profiled(), profiled("R", batch__micro=32))
    ours, recomputing, papers = figure.bars[:3]
    assert (ours.name, recomputing.name, papers.is_paper) == ("Naive, batch 2", "R, batch 32", True)
    assert ours.percent == pytest.approx(papers.percent)
    assert all(sum(bar.percent.values()) == pytest.approx(100) for bar in figure.bars)
    assert figure.unlike == ()


def test_what_backward_recomputes_is_left_out(profiled, made) -> None:
    naive, recomputing = profiled(**ELSEWHERE), profiled("R", made(), **ELSEWHERE | {"batch__micro": 32})
    bar = next(bar for bar in found(naive, recomputing).bars if (bar.phase, bar.name) == ("backward", "R, batch 32"))
    assert bar.percent == pytest.approx({"QKV": 100})


def test_one_configuration_alone_is_no_figure(profiled) -> None:
    assert found(profiled(**ELSEWHERE)) is None
    assert found(profiled(**ELSEWHERE), profiled("F", **ELSEWHERE)) is None


def test_the_picture_has_a_bar_for_each_configuration_and_the_paper(profiled, figures, tmp_path, monkeypatch) -> None:
    from llmexp.report.picture import new_figure

    made = []
    monkeypatch.setattr(
        "llmexp.paper.training.step_times.figure5_plot.new_figure",
        lambda *arguments: made.append(new_figure(*arguments)) or made[-1],
    )
    runs = [profiled(**ELSEWHERE), profiled("R", **ELSEWHERE | {"batch__micro": 32})]
    written = draw_report(build_report(runs), tmp_path / "report.png")
    assert tmp_path / "report_figure5.png" in written
    assert imread(tmp_path / "report_figure5.png").shape[1] == 1140
    forward, backward = made[0].axes
    assert [label.get_text() for label in forward.get_xticklabels()] == [
        "Naive\nbatch 2",
        "R\nbatch 32",
        "paper:\nNaive\nbatch 2",
    ]
    for axes in (forward, backward):
        tops: dict[float, float] = {}
        for bar in axes.patches[: 3 * 8]:
            tops[bar.get_x()] = bar.get_y() + bar.get_height()
        assert list(tops.values()) == pytest.approx([100] * 3)
    assert forward.get_ylabel().endswith("(%)")
    assert "not the paper's runs: model tiny for 7b" in made[0].get_suptitle()


def test_the_table_says_that_other_runs_are_not_the_papers(profiled) -> None:
    table = figure5_table(found(profiled(**ELSEWHERE), profiled("R", **ELSEWHERE | {"batch__micro": 32})))
    assert table.legend[0].startswith("NOT the paper's runs (model tiny for 7b, cpu for a800, 2 ranks for 8)")
    assert [column.header for column in table.columns][2:] == [
        "Naive, batch 2 %",
        "R, batch 32 %",
        "paper: Naive, batch 2 %",
    ]
