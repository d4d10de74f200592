"""Figure 4: scaling over GPUs, with what the paper's text gives of it."""

from __future__ import annotations

from paper_runs import views

BATCH = {"micro": 2, "accumulation": 1}


def scaled(on_a800, hardware: str, *gpus: int, **changes):
    on = {"hardware__name": hardware, "hardware__memory_bytes": 25769803776, "batch": BATCH} | changes
    return [on_a800("Q", speed=1000.0 * count * 0.9 ** (count > 1), parallelism__dp=count, **on) for count in gpus]


def test_the_papers_efficiency_stands_beside_ours(on_a800) -> None:
    (view,) = [view for view in views(*scaled(on_a800, "rtx4090", 1, 2, 8)) if view.name == "fig04"]
    columns = {column.header: column.cells for column in view.table.columns}
    assert columns["GPUs"] == ("1", "2", "4", "8")
    assert columns["weak tokens/s"] == ("1,000", "1,800", "no run", "7,200")
    assert columns["weak scaling %"] == ("100", "90.0", "", "90.0")
    assert columns["paper scaling %"] == ("", "", "", "90.8")
    assert view.missing[0].startswith("python -m llmexp experiment=paper_fig04 hardware=rtx4090 parallelism.dp=4 ")
    assert [trace.name for trace in view.charts[0].traces] == ["weak scaling", "the paper"]


def test_a_doubtful_figure_of_the_text_is_marked(on_a800) -> None:
    (view,) = [view for view in views(*scaled(on_a800, "rtx3090", 1, 8)) if view.name == "fig04"]
    columns = {column.header: column.cells for column in view.table.columns}
    assert columns["paper scaling %"][-1] == "85.9 ? (a)"
    assert "does not say whether with NVLink" in view.table.legend[-1]


def test_another_model_scales_in_the_figures_sweep(on_a800) -> None:
    runs = scaled(on_a800, "rtx4090", 1, 2, model__name="own", sweep__name="paper_fig04")
    (view,) = [view for view in views(*runs) if view.name == "fig04"]
    assert view.table.columns[0].cells == ("1", "2")
    assert any(line.startswith("NOT the paper's runs, which are of 7b with Q") for line in view.table.legend)
    assert views(*scaled(on_a800, "rtx4090", 1, 2, model__name="own")) == []


def test_a_run_that_ended_otherwise_says_how(on_a800) -> None:
    out = on_a800("Q", hardware__name="rtx4090", batch=BATCH, parallelism__dp=4)
    (view,) = [view for view in views(*scaled(on_a800, "rtx4090", 1, 2), out) if view.name == "fig04"]
    columns = {column.header: column.cells for column in view.table.columns}
    assert columns["weak tokens/s"] == ("1,000", "1,800", "-", "no run")
