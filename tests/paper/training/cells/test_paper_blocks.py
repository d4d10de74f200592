"""Tables III, IV, IX and II with made-up runs: each cell says how it is covered, and what makes it unfair."""

from __future__ import annotations

import io

import pytest
from paper_runs import PURE, conf, line, said, views
from planning import table03_methods

from llmexp.method import Method
from llmexp.paper.printed import paper_cell
from llmexp.record.result import Metric
from llmexp.report.references.texts import print_views


def test_a_run_as_the_papers_has_ratios_without_a_mark(on_a800) -> None:
    (view,) = views(on_a800(speed=2 * 7488.3, gb=33.35))
    assert view.name == "table03"
    assert line(view, "Naive") == {
        "model": "7b",
        "method": "Naive",
        "tokens/s": "15,000",
        "paper tokens/s": "7,488.3",
        "x paper": "2.00",
        "peak GB": "33.4",
        "paper GB": "66.7 ? (a)",
        "GB x paper": "0.50",
    }
    assert "In the 1 cell in which nothing known speaks against it, tokens/s are 2.00 times" in view.answers[0]


def test_every_status_of_a_cell_is_named(on_a800) -> None:
    runs = [
        on_a800("Naive", speed=7000, gb=60),
        on_a800("Z2"),
        on_a800("Z3", status="skipped", reason="no such thing here"),
        on_a800("F", status="failed", reason="exit code 3"),
    ]
    (view,) = views(*runs)
    assert [line(view, method)["tokens/s"] for method in ("Naive", "Z2", "R")] == ["7,000", "-", "no run"]
    assert line(view, "Z3")["tokens/s"].startswith("skipped (")
    assert line(view, "F")["tokens/s"].startswith("failed (")
    assert "no such thing here" in said(view)
    assert "exit code 3" in said(view)
    assert view.table.legend[0] == (
        "22 cells: 1 measured, 1 out of memory, 1 skipped, 1 failed, 18 no run; 1 out of memory here alone"
    )
    assert "13b: none of its 16 cells was run" in view.table.legend
    statuses = {cell["method"]: cell["status"] for cell in view.cells if cell["model"] == "7b"}
    assert (statuses["Z2"], statuses["Z3"], statuses["R"]) == ("out of memory", "skipped", "no run")
    assert len(view.cells) == 38


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"precision": PURE | {"name": "bf16_mixed", "master": "fp32", "moments": "fp32"}},
            "precision=bf16_mixed: the memory that the paper prints is of bf16 parameters and states",
        ),
        ({"hardware__name": "h100"}, "8 x h100 instead of 8 x a800"),
        ({"parallelism__dp": 4}, "4 x a800 instead of 8 x a800"),
        ({"data__seq_len": 512}, "512 positions a sample instead of 350"),
        ({"batch": {"micro": 1, "accumulation": 4}}, "4 passes a step instead of 1"),
        ({"model__name": "7b"}, "0.00 billion parameters in model 7b"),
        ({"metrics": {"real_tokens_per_s": 1872.1}}, "padding: 25% of the positions that tokens/s counts are tokens"),
    ],
)
def test_what_makes_a_ratio_unfair_is_said_in_its_cell(on_a800, make_run, changes, words) -> None:
    if "model__name" in changes:  # under the paper's name, with the shape of another
        on = {"hardware__name": "a800", "precision": PURE}
        run = make_run("Z2", metrics={"tokens_per_s": 6101.6}, **on, **changes)
    else:
        run = on_a800("Z2", speed=7488.3, **changes)
    (view,) = views(run)
    cell = line(view, "Z2")["x paper"]
    letter = cell[-2]
    assert cell.endswith(f"({letter})")
    assert f"({letter}) {words}" in view.table.legend
    assert view.answers[0] == "No cell compares fairly with the paper's: the letters in the cells say why."


def test_fewer_gpus_are_compared_by_the_gpu(on_a800) -> None:
    (view,) = views(on_a800("Z2", speed=6101.6 / 2, parallelism__dp=4))
    assert line(view, "Z2")["x paper"].startswith("1.00 (")


def test_what_ran_out_of_memory_elsewhere_says_where(on_a800) -> None:
    (view,) = views(on_a800("Naive", speed=1, parallelism__dp=1), on_a800("Z2", parallelism__dp=1))
    assert line(view, "Z2")["tokens/s"] == "-"
    assert line(view, "Z2")["x paper"].startswith("(")
    assert "1 x a800 instead of 8 x a800" in said(view)
    assert "alone" not in view.table.legend[0]


def test_doubtful_cells_of_the_paper_bear_a_sign_where_the_doubt_is(on_a800) -> None:
    (view,) = views(on_a800("Naive", speed=7000, gb=60))
    assert (line(view, "Naive")["paper tokens/s"], line(view, "Naive")["paper GB"]) == ("7,488.3", "66.7 ? (a)")
    assert "(a) doubt: 66.7 GB rules out fp32 master weights" in said(view)
    (view,) = views(on_a800("R+Z2+O", speed=50, hardware__name="rtx3090", hardware__memory_bytes=25769803776))
    assert line(view, "R+Z2+O")["paper tokens/s"] == "46.1 ? (a)"
    assert "No cell compares fairly" in view.answers[0]


def test_of_several_runs_the_one_nearest_to_the_papers_stands_in_the_cell(on_a800) -> None:
    mixed = on_a800("Z2", speed=1000, precision=PURE | {"name": "bf16_mixed", "master": "fp32"})
    (view,) = views(mixed, on_a800("Z2", speed=6000))
    assert line(view, "Z2")["tokens/s"] == "6,000"
    assert "1 further runs of these cells are not shown: the one nearest to the paper's is" in view.table.legend


def test_another_model_fills_the_layout_of_its_sweep_without_ratios(make_run) -> None:
    tiny = {"sweep__name": "paper_table03", "parallelism__dp": 2}
    state = {"training_state_bytes": 7e6}
    runs = [
        make_run(each, metrics={"tokens_per_s": rate} | state, **tiny) for each, rate in (("Naive", 100), ("F", 150))
    ]
    (view,) = views(*runs)
    assert view.table.title == "table III of the paper, pre-training at batch 1: tiny on 2 x cpu, deepspeed"
    assert view.table.legend[0].startswith("NOT the paper's model: tiny on cpu; beside it stands the paper's 7B")
    assert line(view, "F") == {
        "method": "F",
        "tokens/s": "150",
        "paper 7B tokens/s": "7,694.1",
        "x Naive": "1.50",
        "paper 7B x Naive": "1.03",
        "state MB": "7.0",
        "paper 7B GB": "66.7",
    }
    assert len(view.table.columns[0].cells) == 22
    assert view.missing[0].startswith(
        "python -m llmexp experiment=paper_table03 model=tiny hardware=cpu method=Z2,Z2+O,"
    )


def test_another_model_of_another_sweep_stands_in_a_table_that_is_asked_for(make_run) -> None:
    run = make_run("F", metrics={"tokens_per_s": 150})
    assert views(run) == []
    assert [view.name for view in views(run, asked=["table03"])] == ["table03"]


def test_table_nine_is_of_fine_tuning(on_a800) -> None:
    (view,) = views(on_a800("L+F", speed=100, task__name="finetune"))
    assert view.name == "table09"
    assert line(view, "L+F")["x paper"].startswith("0.0")


def test_table_two_wants_both_engines(on_a800) -> None:
    deepspeed, megatron = on_a800(speed=7488), on_a800(speed=10936, engine=conf("engine/megatron"))
    assert [view.name for view in views(deepspeed)] == ["table03"]
    found = {view.name: view for view in views(deepspeed, megatron)}
    columns = {column.header: column.cells for column in found["table02"].table.columns}
    assert columns["framework"] == ("megatron", "megatron", "megatron", "deepspeed", "deepspeed")
    assert "Z1" not in columns["method"]
    assert columns["batch"] == ("1", "32", "4", "1", "4")
    assert [cell for cell in columns["x paper"] if cell] == ["1.00", "1.00"]
    assert "the paper's 32 read as that of all 8 GPUs" in said(found["table02"])


def test_the_interval_of_repeats_stands_in_the_ratio(on_a800) -> None:
    (view,) = views(on_a800("Z2", speed=1, rate=Metric(mean=6101.6, std_between_repeats=61, n=5)))
    assert line(view, "Z2")["x paper"] == "1.00 ± 0.01"
    assert "± half its 95 % interval by the repeats" in said(view)


def test_the_missing_cells_have_a_command_for_each_model(on_a800) -> None:
    methods = [str(Method.parse(method)) for method in table03_methods("7B")]
    (view,) = views(*(on_a800(method, speed=100) for method in methods if method not in ("F", "R")))
    assert view.missing[0].startswith("python -m llmexp experiment=paper_table03 model=7b hardware=a800 method=R,F ")
    assert view.missing[1].startswith("python -m llmexp experiment=paper_table03 model=13b hardware=a800 method=Z2,")


def test_the_terminal_prints_the_table_within_100_columns(on_a800) -> None:
    runs = [on_a800("Naive", speed=7488.3, gb=66.7), on_a800("Z2", speed=3050.8, gb=40, parallelism__dp=8)]
    out = io.StringIO()
    print_views(views(*runs, on_a800("Z2+O", status="failed", reason="exit code 3")), "paper", out)
    table = [each for each in out.getvalue().splitlines() if each.startswith(" ")]
    assert max(map(len, table)) < 100
    assert "\n".join(each.rstrip() for each in table[:9]).strip("\n") == GOLDEN_TABLE.strip("\n")


def test_a_cell_of_the_reference_is_found_by_its_batch_as_before() -> None:
    cell = paper_cell("7b", "Naive", "a800", 4)
    assert cell
    assert cell.table == "IV"


GOLDEN_TABLE = """
                                                                     GB
                                  paper      x  peak       paper      x
 model  method      tokens/s   tokens/s  paper    GB          GB  paper
 ──────────────────────────────────────────────────────────────────────
 7b     Naive          7,490    7,488.3   1.00  66.7  66.7 ? (a)   1.00
 7b     Z2             3,050    6,101.6   0.50  40.0        37.8   1.06
 7b     Z2+O      failed (b)      393.9                     32.8
 7b     Z3            no run    5,491.4                     30.5
"""
