from math import exp

import pytest

from llmexp.record.result import Metric, Stability
from llmexp.report.compare import compare
from llmexp.report.terminal import print_comparison

SLOW = {"tokens_per_s": Metric(mean=100.0, std_between_repeats=3.0, n=3), "step_time_s": 2.0, "mfu": 0.1}
FAST = {"tokens_per_s": Metric(mean=200.0, std_between_repeats=8.0, n=3), "step_time_s": 1.0}


def test_ratios_carry_the_interval_that_follows_from_the_repeats(make_run):
    ratios = {
        ratio.name: ratio for ratio in compare(make_run("Naive", metrics=SLOW), make_run("F", metrics=FAST)).ratios
    }
    assert list(ratios) == ["tokens_per_s", "step_time_s"]
    # Relative deviations 3 % and 4 % make 5 %, over sqrt(3); Welch's 3.7 degrees of freedom have the factor 2.87.
    assert ratios["tokens_per_s"].value == pytest.approx(2)
    assert ratios["tokens_per_s"].interval == pytest.approx((2 * exp(-0.083), 2 * exp(0.083)), abs=2e-3)
    assert ratios["step_time_s"].value == pytest.approx(0.5)
    assert ratios["step_time_s"].interval is None


def test_a_single_repeat_counts_as_noise_of_its_own_beside_several(make_run):
    """One value beside three of deviation 4 %: an error of 4 % x sqrt(1 + 1/3), by Student's 4.303 of 2 degrees."""
    single = SLOW | {"tokens_per_s": 100.0}
    for pair in ((single, FAST), (FAST, single)):
        a, b = (make_run(method, metrics=metrics) for method, metrics in zip(("Naive", "F"), pair, strict=True))
        found = compare(a, b).ratios[0]
        half = 4.303 * 0.04 * (4 / 3) ** 0.5
        assert found.value is not None
        assert found.interval == pytest.approx((found.value * exp(-half), found.value * exp(half)), rel=1e-3)


def test_what_is_nothing_in_both_has_no_ratio(make_run):
    nothing = {"optimizer_host_bytes": 0.0, "peak_rss_bytes": 0.0}
    ratios = compare(
        make_run("Z2", metrics=nothing), make_run("Z2+O", metrics=nothing | {"optimizer_host_bytes": 5.0})
    ).ratios
    assert [(ratio.name, ratio.value) for ratio in ratios] == [("optimizer_host_bytes", None)]


def test_only_what_differs_is_listed(make_run):
    found = compare(make_run("Naive"), make_run("R", measure__steps=7)).settings
    assert {difference.key: (difference.a, difference.b) for difference in found} == {
        "method": ("Naive", "R"),
        "measure.steps": ("2", "7"),
    }


def test_a_run_equals_itself(make_run):
    folder = make_run(metrics=SLOW)
    comparison = compare(folder, folder)
    assert comparison.settings == ()
    assert comparison.same_work
    assert {ratio.value for ratio in comparison.ratios} == {1}


def test_recording_elsewhere_is_no_difference(make_run):
    assert compare(make_run("F"), make_run("F", sweep__name="other", force=True)).settings == ()


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({}, "the same training: the same sequences, losses of the first steps within 0.0e+00 of each other"),
        (
            {"update": 0.0},
            "NOT the same training, so speeds cannot be compared: the first step changes a parameter by 0.0001 and 0",
        ),
        (
            {"read": None},
            "cannot tell whether the same training: losses agree, as those of random tokens do, and a",
        ),
    ],
)
def test_the_terminal_says_whether_both_did_the_same_training(trained, capsys, second, said):
    speed = {"metrics": FAST}
    print_comparison(compare(trained([6.0], **speed), trained([6.0], sweep__name="again", **speed, **second)))
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    assert ("equally fast:" in out) is ("NOT" not in said)


def test_runs_that_were_asked_to_learn_otherwise_are_not_called_another_training(trained, capsys):
    print_comparison(compare(trained([6.0]), trained([5.0], optimizer__lr=0.5)))
    assert "training" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"batch": {"micro": 2, "accumulation": 1}}, "global batch"),
        ({"data__seq_len": 128}, "seq_len"),
        ({"precision__name": "other"}, "precision"),
        ({"optimizer__name": "sgd"}, "optimizer.name"),
        ({"method": "Q"}, "trainable_parameters"),
    ],
)
def test_other_work_is_said(make_run, changes, key):
    comparison = compare(make_run(), make_run(**changes))
    assert not comparison.same_work
    assert [difference.key for difference in comparison.work] == [key]


def test_the_same_global_batch_in_other_pieces_is_the_same_work(make_run):
    pieces = {"batch": {"micro": 1, "accumulation": 2}}, {"batch": {"micro": 2, "accumulation": 1}}
    comparison = compare(*(make_run(**changes) for changes in pieces))
    assert comparison.same_work
    assert {"batch.micro", "batch.accumulation"} <= {difference.key for difference in comparison.settings}


def test_what_ran_and_the_stack_are_compared(make_run):
    other = make_run("F")
    other.result_path.write_text(
        other.result_path.read_text().replace('"what_ran": {}', '"what_ran": {"attention_kernel": "flash"}')
    )
    found = {difference.key: (difference.a, difference.b) for difference in compare(make_run("Naive"), other).settings}
    assert found["what_ran.attention_kernel"] == (None, "flash")


def test_the_terminal_shows_all_of_it(make_run, capsys):
    print_comparison(compare(make_run("Naive", metrics=SLOW), make_run("Q", metrics=FAST)))
    out = capsys.readouterr().out
    assert "NOT the same work:" in out
    assert "trainable_parameters" in out
    assert "2.000 (1.841 to 2.172)" in out
    print_comparison(compare(make_run("Naive"), make_run("F", "failed", reason="broke")))
    out = capsys.readouterr().out
    assert "same work" in out
    assert "NOT" not in out
    assert "(failed: broke)" in out


def test_figures_have_three_digits_but_counts_have_all_and_losses_four_places(make_run, capsys):
    metrics = {"peak_rss_bytes": 6.7439e8, "trainable_parameters": 1_234_567, "final_loss": 2.34567}
    print_comparison(compare(make_run("Naive", metrics=metrics), make_run("F", metrics=metrics)))
    shown = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines() if "1.000" in line}
    assert shown == {
        "peak_rss_bytes": "674,000,000",
        "trainable_parameters": "1,234,567",
        "final_loss": "2.3457",
    }


def test_an_unstable_run_and_one_that_cannot_be_judged_are_called_so(make_run, capsys):
    unstable = make_run(metrics=SLOW, stability=Stability(verdict="unstable", reasons=["drift: x"]))
    unknown = make_run("F", metrics=FAST, stability=Stability(verdict="unknown", reasons=["too few steps"]))
    print_comparison(compare(unstable, unknown))
    said = capsys.readouterr().out
    assert "(success, unstable: drift: x)" in said
    assert "(success, stability unknown: too few steps)" in said


DIRTY = {"commit": "c0ffee", "dirty": True, "diff": {"file": "git.llmexp.diff", "sha256": "123456" * 10}}


def on(folder, checkout):
    environment = {"git": {"llmexp": checkout, "working_directory": None}}
    folder.write(folder.result_path, folder.result().model_copy(update={"environment": environment}))
    return folder


@pytest.mark.parametrize(
    ("checkout", "shown"),
    [
        ({"dirty": False}, "none"),
        (DIRTY | {"diff": {"file": "same", "sha256": "abcdef" * 10}}, "abcdefabcdef"),
        ({"dirty": True}, "not kept"),
    ],
)
def test_uncommitted_changes_that_differ_are_one_line(make_run, checkout, shown):
    first, second = on(make_run("F"), DIRTY), on(make_run("R"), {"commit": "c0ffee"} | checkout)
    (difference,) = compare(first, second).environment
    assert (difference.key, difference.a, difference.b) == (
        "git.llmexp.uncommitted changes differ",
        "123456123456",
        shown,
    )


def test_the_same_uncommitted_changes_are_no_difference(make_run):
    assert compare(on(make_run("F"), DIRTY), on(make_run("R"), DIRTY)).environment == ()
