import pytest

from benchmarks.verdicts import CASES, rates
from llmexp.record.result import Stability
from llmexp.report.compare import compare
from llmexp.report.reproduction import judge


def judged(tokens_per_s: float, half: float, verdict: str = "stable", source: str = "repeats") -> Stability:
    reasons = [] if verdict == "stable" else ["noise"]
    ends = {"tokens_per_s_low": tokens_per_s - half, "tokens_per_s_high": tokens_per_s + half}
    return Stability(verdict=verdict, reasons=reasons, source=source, **ends)


def measured(make_run, sweep: str, tokens_per_s: float, half: float, verdict: str = "stable", **changes):
    return make_run(metrics={"tokens_per_s": tokens_per_s}, stability=judged(tokens_per_s, half, verdict), sweep__name=sweep, **changes)


@pytest.mark.parametrize(
    ("first", "second", "reproduced", "reason"),
    [
        (judged(100, 3), judged(104, 1), True, "1.040 of the first run's, within 5%"),
        (judged(100, 3), judged(94, 4), None, "but their 95 % intervals overlap: more steps or repeats make them narrower"),
        (judged(100, 3), judged(80, 4), False, "and their 95 % intervals are apart"),
        (judged(100, 3), judged(80, 4, "unstable"), None, "but the second measurement is unstable"),
        (judged(100, 3), judged(80, 4, "unknown"), None, "but the second measurement is of unknown stability"),
        (judged(100, 30, "unstable"), judged(121, 30, "unstable"), None, "1.210 of the first run's, but both measurements are unstable"),
        (judged(100, 30, "unstable"), judged(104, 30, "unstable"), True, "within 5%, though both measurements are unstable"),
        (judged(100, 3), judged(104, 30, "unstable"), True, "within 5%, though the second measurement is unstable"),
        (
            judged(100, 3, "unknown"),
            judged(80, 3, "unstable"),
            None,
            "but the first measurement is of unknown stability and the second measurement is unstable",
        ),
        (None, judged(80, 4), None, "but the first measurement is of unknown stability"),
        (
            judged(100, 1),
            judged(92, 1, source="steps"),
            None,
            "one repeat is one process: measure.repeats=3 tells",
        ),
        (judged(100, 1), judged(92, 1), False, "are apart"),
        (judged(100, 1, source="steps"), judged(80, 1, source="steps"), False, "are apart"),
    ],
)
def test_speeds_are_held_against_what_can_be_told_apart(make_run, first, second, reproduced, reason):
    runs = []
    for sweep, one in (("first", first), ("second", second)):
        speed = (one.tokens_per_s_low + one.tokens_per_s_high) / 2 if one else 100.0
        runs.append(make_run(metrics={"tokens_per_s": speed}, stability=one, sweep__name=sweep))
    found = judge(compare(*runs))
    assert found.reproduced is reproduced
    assert found.reason.endswith(reason)


QUICK, OTHER_PROCESSES, UNSTABLE, PAPER = (
    next(case for case in CASES if case.name == name)
    for name in ("quick, steps 3 %", "quick, steps 3 %, processes 3 %", "quick, steps 20 %", "paper, steps 3 %")
)


@pytest.mark.parametrize(("case", "pairs"), [(QUICK, 100), (OTHER_PROCESSES, 200), (UNSTABLE, 100), (PAPER, 20)])
def test_equal_speeds_are_seldom_called_not_reproduced(case, pairs):
    assert rates(case, 1.0, pairs)["NOT reproduced"] <= 0.05


@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_a_tenth_is_seldom_called_reproduced_where_runs_are_stable_and_repeats_tell_it(ratio):
    quick, paper = rates(QUICK, ratio, 100), rates(PAPER, ratio, 20)
    assert (quick["both stable"], quick["reproduced"]) == (1, pytest.approx(0, abs=0.02))
    assert (paper["both stable"], paper["NOT reproduced"]) == (1, 1)


def test_equal_speeds_of_stable_runs_are_reproduced_and_unstable_runs_never_say_that_they_are_not():
    assert rates(QUICK, 1.0, 100)["reproduced"] >= 0.97
    assert rates(UNSTABLE, 1.5, 50) == {"reproduced": 0, "NOT reproduced": 0, "cannot tell": 1, "both stable": 0}


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
