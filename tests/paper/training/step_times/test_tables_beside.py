"""Our runs in the paper's layout: times beside its own for the same run, shares alone for any other."""

from __future__ import annotations

import pytest
from paper_runs import views

from llmexp.paper.printed.breakdowns import breakdown_tables
from llmexp.paper.training.step_times.matching import SWEEP
from llmexp.record.folder import RunFolder
from llmexp.report.columns import ReportTable
from llmexp.report.table import build_report
from llmexp.report.text import markdown

PURE = {"name": "bf16_pure"} | dict.fromkeys(("parameters", "gradients", "master", "moments"), "bf16")
ELSEWHERE = {"model__name": "tiny", "hardware__name": "cpu", "parallelism__dp": 2, "sweep__name": SWEEP}


def tables(*folders: RunFolder) -> dict[str, ReportTable]:
    (section,) = build_report(folders).sections
    told = [table for table in section.tables if " of the paper" in table.title]
    return {table.title.partition(" of the paper")[0]: table for table in told}


def lines(table: ReportTable) -> dict[tuple[str, ...], dict[str, str]]:
    """Each line's cells by heading, by the cells of its names; a name that stands once counts for those below it."""
    names = [column for column in table.columns if column.left]
    found, last = {}, [""] * len(names)
    for row in range(len(names[0].cells)):
        last = [column.cells[row] or before for column, before in zip(names, last, strict=True)]
        found[tuple(last)] = {column.header: column.cells[row] for column in table.columns if not column.left}
    return found


def test_the_papers_own_times_stand_at_a_ratio_of_one_to_its_tables(profiled) -> None:
    found = tables(run := profiled())
    assert set(found) == {"table V", "table VI"}
    assert {"table05", "table06"} <= {view.name for view in views(run)}
    modules = lines(found["table VI"])
    assert modules["forward", "QKV"] == {
        "ms": "9.92",
        "% of phase": "13.2",
        "paper ms": "9.92",
        "paper % of phase": "13.2",
        "x paper": "1.00",
    }
    assert modules["backward", "non-overlapping communication"]["% of phase"] == "15.5"
    assert {cells["x paper"] for names, cells in modules.items() if names[1] != "rest"} == {"1.00"}
    for phase in ("forward", "backward"):
        ours = [float(cells["% of phase"]) for (of, _), cells in modules.items() if of == phase]
        papers = [float(cells["paper % of phase"]) for (of, _), cells in modules.items() if of == phase]
        assert sum(ours) == pytest.approx(100, abs=0.5)
        assert sum(papers) == pytest.approx(100, abs=0.5)
    phases = lines(found["table V"])
    assert phases["forward", "whole, % of step"]["x paper"] == "1.00"
    assert phases["backward", "whole, % of step"]["%"] == "48.2"
    assert "profiled step over measured one: Naive +4%" in found["table V"].legend


def test_a_doubtful_figure_has_a_letter_that_the_legend_explains(profiled) -> None:
    found = tables(profiled())["table V"]
    assert lines(found)["optimizer", "whole, % of step"]["paper %"] == "36.9 (b)"
    assert found.legend[-1].startswith("(b) odd: the three shares add up to 98.7%")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch__micro": 4}, "batch 4 for 2"),
        ({"data__seq_len": 64}, "seq_len 64 for 350"),
        ({"model__name": "1b"}, "model 1b for 7b"),
        ({"hardware__name": "h100"}, "h100 for a800"),
        ({"parallelism__dp": 4}, "4 ranks for 8"),
        ({"optimizer__name": "sgd"}, "optimizer=sgd"),
        ({"engine__name": "torch"}, "engine torch for deepspeed"),
        ({"batch": {"micro": 2, "accumulation": 2}}, "2 passes for 1"),
    ],
)
def test_another_run_than_the_papers_is_shown_in_its_sweep_alone_with_shares_alone(profiled, change, said) -> None:
    assert tables(profiled(**change)) == {}
    found = tables(profiled(**change, sweep__name=SWEEP))
    assert set(found) == {"table V", "table VI"}
    for table in found.values():
        assert table.legend[0].startswith("NOT the paper's run (")
        assert said in table.legend[0]
        assert not {"x paper", "paper ms"} & {column.header for column in table.columns}
    assert lines(found["table VI"])["forward", "QKV"]["paper % of phase"] == "13.2"


def test_a_table_of_several_methods_waits_for_all_of_them(profiled) -> None:
    naive, flash = profiled(**ELSEWHERE), profiled("F", **ELSEWHERE)
    assert set(tables(naive)) == {"table V", "table VI"}
    assert set(tables(naive, flash)) == {"table V", "table VI", "table VIII"}
    others = [profiled(method, **ELSEWHERE | {"batch__micro": 32}) for method in ("R", "F+R")]
    every = tables(naive, flash, *others)
    assert list(every) == [f"table {number}" for number in ("V", "VI", "VII", "VIII", "XIII", "XV")] + ["figure 5"]
    assert lines(every["table XIII"])["R", "backward"] == {"% of phase": "50.0", "paper % of phase": "69.0"}
    assert lines(every["table XV"])["F+R",] == {"s": "0.130", "% of step": "25.0", "paper % of step": "20.4"}


def test_zero_is_shown_in_all_readings_of_the_papers_words_and_of_each_model(profiled) -> None:
    runs = [
        profiled(method, model__name=model, batch__micro=32)
        for model in ("7b", "13b")
        for method in ("Z2", "Z3", "R+Z2", "R+Z2+O")
    ]
    found = tables(*runs)
    assert set(found) == {"table XIV", "table XVI"}
    copies, communication = lines(found["table XIV"]), lines(found["table XVI"])
    assert list(copies)[:4] == [
        ("ZeRO-2", "7B", "Z2"),
        ("ZeRO-2", "7B", "R+Z2 *"),
        ("ZeRO-2", "7B", "R+Z2+O *"),
        ("ZeRO-2", "13B", "Z2"),
    ]
    assert "*: the paper has no such row" in found["table XIV"].legend
    assert copies["ZeRO-2", "7B", "Z2"]["s"] == "0.052"
    assert copies["ZeRO-2", "7B", "Z2"]["paper s"] == "0.596"
    assert communication["ZeRO-3", "13B", "Z3"]["% of step"] == "50.0"
    assert "doubt: implied iteration 10.18 s" in " ".join(found["table XVI"].legend)


def test_a_cpu_has_no_copies_rather_than_none_of_any_length(profiled, made) -> None:
    runs = [profiled(method, made(on_device=False, copy_ns=0), **ELSEWHERE) for method in ("Z2", "Z3")]
    found = tables(*runs)["table XIV"]
    assert "nothing of ours: on a CPU there is no device to copy to" in found.legend
    assert lines(found)["ZeRO-2", "7B", "Z2"] == {"paper % of step": "4.9 (a)"}


def test_a_run_that_gave_no_breakdown_says_how_it_ended(profiled, make_run) -> None:
    naive = profiled(**ELSEWHERE)
    out_of_memory = make_run("F", "oom", **ELSEWHERE, batch__micro=2, precision=PURE)
    assert lines(tables(naive, out_of_memory)["table VIII"])["forward", "F"]["ms"] == "-"
    untraced = make_run("F", metrics={"tokens_per_s": 1.0}, **ELSEWHERE, batch__micro=2, precision=PURE)
    assert lines(tables(naive, untraced)["table VIII"])["forward", "F"]["ms"] == "not traced"
    assert tables(make_run("Naive", "oom", **ELSEWHERE, batch__micro=2)) == {}


def test_places_have_tables_of_their_own_and_the_papers_batch_comes_first(profiled) -> None:
    here, larger = profiled(**ELSEWHERE), profiled(**ELSEWHERE | {"batch__micro": 8})
    elsewhere = profiled(**ELSEWHERE | {"engine__name": "torch"})
    (section,) = build_report([larger, here, elsewhere]).sections
    titles = [table.title for table in section.tables if table.title.startswith("table VI ")]
    assert len(titles) == 2
    assert "deepspeed" in titles[0]
    assert "torch" in titles[1]
    first = next(table for table in section.tables if table.title == titles[0])
    assert "batch" not in first.legend[0]


def test_every_table_stands_in_markdown_too(profiled) -> None:
    assert "### table VI of the paper, modules: 7b on a800, 8 ranks, deepspeed, bf16_pure" in markdown(
        build_report([profiled()])
    )


def test_every_figure_of_the_tables_has_its_own_names() -> None:
    for table in breakdown_tables():
        names = [figure.labels for figure in table.figures]
        assert len(set(names)) == len(names)
        assert {len(labels) for labels in names} == {len(table.headings)}
