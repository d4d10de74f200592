"""The question of a page: the sweep's command from those of its runs, and how they ended."""

from __future__ import annotations

from llmexp.report.page.question import asked_command, endings
from llmexp.report.table import build_report


def rows(*folders):
    return build_report(folders).rows


def test_a_sweep_is_one_command_with_commas(make_run):
    found = rows(*(make_run(method, batch__micro=micro) for method in ("Naive", "F+R") for micro in (1, 2)))
    assert asked_command(found) == "python -m llmexp method=Naive,F+R batch.micro=1,2 -m"


def test_runs_that_are_no_product_leave_an_ellipsis(make_run):
    found = rows(make_run("Naive", batch__micro=1), make_run("F", batch__micro=2))
    assert asked_command(found) == "python -m llmexp …"


def test_a_value_with_commas_of_its_own_is_not_joined(make_run):
    found = rows(*(make_run(batch={"micro": micro, "accumulation": 1}) for micro in (1, 2)))
    assert asked_command(found) == "python -m llmexp method=Naive …"


def test_one_run_is_its_own_command(make_run):
    assert asked_command(rows(make_run("F"))) == "python -m llmexp method=F"


def test_endings_are_counted(make_run):
    found = rows(make_run("F", status="oom"), make_run("R"), make_run("Z2"), make_run("Naive", status=None))
    assert endings(found) == "4 runs: 2 success, 1 out of memory, 1 planned"
