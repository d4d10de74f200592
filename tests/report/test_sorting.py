import pytest

from llmexp.errors import ConfigError
from llmexp.report.sorting import sorted_by
from llmexp.report.table import build_report


@pytest.fixture
def report(make_run):
    speeds = {"Naive": 2.0, "F": 3.0, "Z2": 1.0}
    measured = {method: {"tokens_per_s": speed, "step_time_s": 1 / speed} for method, speed in speeds.items()}
    runs = [make_run(method, metrics=metrics) for method, metrics in measured.items()]
    return build_report([*runs[:2], make_run("R", "oom"), runs[2]])


@pytest.mark.parametrize(
    ("column", "order"),
    [
        ("tokens_per_s", ["F", "Naive", "Z2", "R"]),
        ("step_time_s", ["F", "Naive", "Z2", "R"]),
        ("method", ["F", "Naive", "R", "Z2"]),
        ("state", ["R", "Naive", "F", "Z2"]),
    ],
)
def test_rows_stand_in_the_order_of_a_column_the_best_first_and_those_without_it_last(report, column, order):
    assert [row.method for row in sorted_by(report, column).rows] == order


def test_a_column_that_is_not_there_is_refused(report):
    with pytest.raises(ConfigError, match="unknown --sort column 'token_per_s': did you mean tokens_per_s"):
        sorted_by(report, "token_per_s")
