from __future__ import annotations

from llmexp.report.table import build_report
from llmexp.report.text import markdown


def shown(report) -> list[tuple[str, int]]:
    return [(row.method, row.batch.micro) for row in report.rows]


def test_of_each_configuration_the_smallest_batch_and_the_largest_measured(make_run):
    endings = {1: "success", 2: "success", 4: "success", 8: "oom", 16: "skipped"}
    runs = [make_run("F", status, batch__micro=micro) for micro, status in endings.items()]
    runs += [make_run("F", batch__micro=micro, data__seq_len=64) for micro in (1, 2)]
    report = build_report(runs).largest_batches()
    assert shown(report) == [("F", 1), ("F", 4), ("F", 1), ("F", 2)]
    assert "the largest measured; 3 others left out" in markdown(report)


def test_what_ran_out_of_memory_at_once_is_shown_as_that(make_run):
    report = build_report(
        [make_run("Naive", "oom", batch__micro=1), make_run("Naive", "skipped", batch__micro=2)]
    ).largest_batches()
    assert shown(report) == [("Naive", 1)]
    assert report.rows[0].state == "oom"


def test_what_differs_in_more_is_not_hidden(make_run):
    runs = [
        make_run("F", batch__micro=1),
        make_run("R", batch__micro=2),
        make_run("F", batch__micro=4, batch__accumulation=2),
    ]
    report = build_report(runs).largest_batches()
    assert shown(report) == [("F", 1), ("R", 2), ("F", 4)]
    assert report.sections[0].left_out == 0
