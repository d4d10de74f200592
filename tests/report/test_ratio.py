import pytest

from llmexp.record.result import Metric, Stability
from llmexp.report.ratio import RateRatio
from llmexp.report.row import read_row
from llmexp.report.table import build_report

UNSTABLE, UNKNOWN = (
    Stability(verdict="unstable", reasons=["drift: …"]),
    Stability(verdict="unknown", reasons=["one repeat …"]),
)


def speed(mean: float, n: int = 3) -> dict[str, Metric]:
    return {"tokens_per_s": Metric(mean=mean, std_between_repeats=0.01 * mean if n > 1 else None, n=n)}


def test_a_ratio_has_the_interval_of_both_and_the_worse_sign(make_run):
    naive, fast = (
        make_run("Naive", metrics=speed(100.0), stability=UNKNOWN),
        make_run("F", metrics=speed(150.0), stability=UNSTABLE),
    )
    ratio = build_report([naive, fast]).sections[0].over_naive(read_row(fast))
    # t of 4 degrees of freedom 2.776 x 1 % x sqrt(2 / 3) = 2.27 %.
    assert ratio.cell() == "1.50 ± 0.03 !"
    assert ratio.interval == pytest.approx((1.466, 1.534), abs=1e-3)


def test_a_ratio_of_single_processes_has_none_and_one_over_itself_is_one(make_run):
    naive, fast = (
        make_run("Naive", metrics=speed(100.0, 1), stability=UNKNOWN),
        make_run("F", metrics=speed(150.0, 1), stability=UNKNOWN),
    )
    report = build_report([naive, fast])
    assert [report.sections[0].over_naive(row).cell() for row in report.rows] == ["1.00", "1.50 ?"]
    assert report.sections[0].over_naive(report.rows[1]).interval is None


def test_over_a_printed_figure_only_ones_own_repeats_count(make_run):
    ratio = RateRatio(read_row(make_run("F", metrics=speed(150.0))), 300.0)
    # t of 2 degrees of freedom 4.303 x 1 % / sqrt(3) = 2.48 % of a half.
    assert ratio.cell(3) == "0.500 ± 0.012"
    assert RateRatio(ratio.row, 300.0, factor=0.5).cell(1, 100) == "25.0 ± 0.6"
