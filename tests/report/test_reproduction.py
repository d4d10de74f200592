from llmexp.record.result import Metric
from llmexp.report.compare import compare
from llmexp.report.reproduction import judge


def measured(make_run, sweep: str, tokens_per_s: float, deviation: float, **changes):
    return make_run(
        metrics={"tokens_per_s": Metric(mean=tokens_per_s, std_between_repeats=deviation, n=3)},
        sweep__name=sweep,
        **changes,
    )


def test_the_verdict_is_that_on_the_speeds(make_run):
    first = measured(make_run, "first", 100.0, 1.0)
    assert str(judge(compare(first, measured(make_run, "second", 101.0, 1.0)))).startswith(
        "reproduced: tokens_per_s is 1.010 of the first run's"
    )
    assert str(judge(compare(first, measured(make_run, "third", 80.0, 1.0)))).startswith(
        "NOT reproduced: tokens_per_s is 0.800 of the first run's"
    )
    assert str(judge(compare(first, measured(make_run, "fourth", 80.0, 20.0)))).startswith(
        "cannot tell: tokens_per_s is 0.800 of the first run's"
    )


def test_another_speed_on_another_processor_cannot_be_judged(make_run):
    runs = measured(make_run, "first", 100.0, 1.0), measured(make_run, "second", 80.0, 1.0)
    for run, model in zip(runs, ("Xeon", "EPYC"), strict=True):
        run.write(run.result_path, run.result().model_copy(update={"environment": {"cpu": {"model": model}}}))
    said = str(judge(compare(*runs)))
    assert said.startswith("cannot tell: tokens_per_s is 0.800 of the first run's")
    assert said.endswith("but on another device: cpu.model Xeon, now EPYC")


def test_another_training_is_not_reproduced_however_fast_it_is(trained):
    speed = {"metrics": {"tokens_per_s": Metric(mean=100.0, std_between_repeats=1.0, n=3)}}
    first, second = trained([6.0, 5.0], **speed), trained([6.0, 6.0], update=0.0, sweep__name="second", **speed)
    said = "NOT reproduced: it did not do the same training: the losses of the first steps are up to 20.00% apart"
    assert str(judge(compare(first, second))) == said
    assert judge(compare(first, trained([6.0, 5.0], sweep__name="third", **speed))).reproduced


def test_other_work_cannot_be_judged(make_run):
    found = judge(
        compare(measured(make_run, "first", 100.0, 1.0), measured(make_run, "second", 100.0, 1.0, data__seq_len=128))
    )
    assert found.reproduced is None
    assert "seq_len" in found.reason


def test_the_same_ending_again_is_reproduced_and_another_is_not(make_run):
    oom, skipped = make_run(status="oom", sweep__name="first"), make_run(status="skipped", sweep__name="second")
    assert str(judge(compare(oom, oom))) == "reproduced: it ended oom again"
    assert str(judge(compare(oom, skipped))) == "NOT reproduced: the first run ended oom, this one skipped"


def test_a_run_that_breaks_here_says_nothing_of_the_first(make_run):
    runs = (
        measured(make_run, "first", 100.0, 1.0),
        make_run(status="failed", reason="no compiler", sweep__name="second"),
    )
    assert str(judge(compare(*runs))) == "cannot tell: the first run ended success, this one failed: no compiler"
