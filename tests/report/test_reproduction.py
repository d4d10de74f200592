import pytest

from llmexp.record.result import Stability
from llmexp.report.compare import compare
from llmexp.report.reproduction import judge


def measured(make_run, sweep: str, tokens_per_s: float, half: float, verdict: str = "stable", **changes):
    stability = Stability(verdict=verdict, reasons=["noise"], tokens_per_s_low=tokens_per_s - half, tokens_per_s_high=tokens_per_s + half)
    return make_run(metrics={"tokens_per_s": tokens_per_s}, stability=stability, sweep__name=sweep, **changes)


@pytest.mark.parametrize(
    ("second", "half", "verdict", "reproduced", "reason"),
    [
        (104.0, 1.0, "stable", True, "tokens_per_s is 1.040 of the first run's, within 5%"),
        (94.0, 4.0, "stable", True, "their 95 % intervals overlap"),
        (80.0, 4.0, "stable", False, "their 95 % intervals are apart"),
        (80.0, 4.0, "unstable", None, "but unstable: the second measurement"),
    ],
)
def test_speeds_are_held_against_what_can_be_told_apart(make_run, second, half, verdict, reproduced, reason):
    found = judge(compare(measured(make_run, "first", 100.0, 3.0), measured(make_run, "second", second, half, verdict)))
    assert found.reproduced is reproduced
    assert reason in found.reason


def test_another_speed_on_another_processor_cannot_be_judged(make_run):
    runs = measured(make_run, "first", 100.0, 1.0), measured(make_run, "second", 80.0, 1.0)
    for run, model in zip(runs, ("Xeon", "EPYC"), strict=True):
        run.write(run.result_path, run.result().model_copy(update={"environment": {"cpu": {"model": model}}}))
    assert str(judge(compare(*runs))) == "cannot tell: tokens_per_s is 0.800 of the first run's, but on another device: cpu.model Xeon, now EPYC"


def test_other_work_cannot_be_judged(make_run):
    found = judge(compare(measured(make_run, "first", 100.0, 1.0), measured(make_run, "second", 100.0, 1.0, data__seq_len=128)))
    assert found.reproduced is None
    assert "seq_len" in found.reason


def test_the_same_ending_again_is_reproduced_and_another_is_not(make_run):
    oom, skipped = make_run(status="oom", sweep__name="first"), make_run(status="skipped", sweep__name="second")
    assert str(judge(compare(oom, oom))) == "reproduced: it ended oom again"
    assert str(judge(compare(oom, skipped))) == "NOT reproduced: the first run ended oom, this one skipped"


def test_a_run_that_breaks_here_says_nothing_of_the_first(make_run):
    runs = measured(make_run, "first", 100.0, 1.0), make_run(status="failed", reason="no compiler", sweep__name="second")
    assert str(judge(compare(*runs))) == "cannot tell: the first run ended success, this one failed: no compiler"
