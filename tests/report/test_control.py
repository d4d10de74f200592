import pytest

from llmexp.record.result import Metric
from llmexp.report.control import control_lines
from llmexp.report.table import build_report
from llmexp.training.report.conclusion import conclusion


def run(make_run, method: str, mean: float, **changes):
    return make_run(method, metrics={"tokens_per_s": Metric(mean=mean, std_between_repeats=0.5, n=3)}, **changes)


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (
            101.0,
            "control: Naive is equally fast again, so the machine does not explain other differences: "
            "tokens_per_s is 1.010 of the first run's",
        ),
        (80.0, "control: Naive is NOT equally fast again: the machine changed meanwhile"),
        (104.0, "control: Naive may or may not be equally fast again: tokens_per_s is 1.040"),
    ],
)
def test_a_control_says_whether_the_same_run_was_as_fast_again(make_run, again, said):
    rows = build_report(
        [run(make_run, "Naive", 100.0), run(make_run, "F", 100.0), run(make_run, "Naive", again, control=True)]
    ).rows
    (line,) = control_lines(rows)
    assert line.startswith(said)
    assert len(conclusion(rows)) <= 1


def test_a_control_that_did_another_training_says_so(trained):
    rows = build_report([trained([6.0, 5.0]), trained([6.0, 6.0], control=True)]).rows
    (line,) = control_lines(rows)
    assert line.startswith("control: Naive did NOT do the same training again: the losses of the first steps are up to")


def test_a_control_of_another_run_or_without_a_result_says_nothing(make_run):
    first = run(make_run, "Naive", 100.0)
    assert control_lines(build_report([first, run(make_run, "Naive", 90.0, control=True, seed=1)]).rows) == []
    assert control_lines(build_report([first, make_run("Naive", "oom", control=True)]).rows) == []
    assert not [line for line in build_report([first]).sections[0].legend if line.startswith("control")]
