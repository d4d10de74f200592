from math import nan

import pytest

from llmexp.record.folder import RunFolder
from llmexp.report.table import build_report
from llmexp.report.terminal import print_report
from llmexp.training.report.fairness import fairness
from llmexp.training.report.trained import COMPARED_STEPS

NOT = "not the same training, so speeds cannot be compared"


def told(*runs: RunFolder) -> list[str]:
    return fairness(build_report(runs).rows)


def test_layouts_with_the_same_losses_are_the_same_training(trained):
    one, two = trained([2.0, 1.0], batch__micro=2), trained([2.0, 1.000005], ranks=2)
    (line,) = told(one, two, trained([2.0, 1.0], method="F", batch__micro=2), trained([2.0, 1.0], ranks=2, method="F"))
    assert "the same training on deepspeed and deepspeed dp 2" in line
    assert "within 5.0e-06" in line
    assert "(Naive, F)" in line


@pytest.mark.parametrize(("losses", "share"), [([2.0, 1.1], "10.00%"), ([2.0, nan], "inf%")])
def test_other_losses_are_another_training(trained, losses, share, capsys):
    one, two = trained([2.0, 1.0], batch__micro=2), trained(losses, ranks=2)
    (line,) = told(one, two)
    assert "not the same training" in line
    assert f"up to {share} apart on deepspeed and deepspeed dp 2 with Naive" in line
    print_report(build_report([one, two]))
    assert "speeds cannot be compared" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("updates", "said"),
    [
        (
            (1e-4, 0.0),
            f"{NOT}: the first step changes a parameter by 0.0001 and 0 at most on deepspeed and "
            "deepspeed dp 2 with Naive",
        ),
        ((1e-4, 1e-5), f"{NOT}: the first step changes a parameter by 0.0001 and 1e-05 at most"),
        ((0.0, 0.0), "cannot tell whether the same training: the first step changed no parameter on deepspeed"),
        (
            (1e-4, None),
            "cannot tell whether the same training: losses agree, as they would without any update, "
            "and no update was recorded",
        ),
    ],
)
def test_equal_losses_without_equal_updates_are_not_called_the_same_training(trained, updates, said):
    (line,) = told(
        trained([6.0, 6.0], batch__micro=2, update=updates[0]), trained([6.0, 6.0], ranks=2, update=updates[1])
    )
    assert line.startswith(said)


@pytest.mark.parametrize(
    ("gradients", "said"),
    [
        (
            (3.0, 6.0),
            f"{NOT}: the first step's gradients have norms of 3 and 6 on deepspeed and deepspeed dp 2",
        ),
        ((3.0, 3.0005), "the same training on deepspeed and deepspeed dp 2"),
        ((3.0, None), "the same training on deepspeed and deepspeed dp 2"),
    ],
)
def test_gradients_that_are_summed_instead_of_averaged_are_another_training(trained, gradients, said):
    """AdamW's first update is as large with both, and losses of random tokens are."""
    (line,) = told(
        trained([6.0, 6.0], batch__micro=2, gradient=gradients[0]), trained([6.0, 6.0], ranks=2, gradient=gradients[1])
    )
    assert line.startswith(said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimizer__lr": 0.0}, "optimizer.lr 0.0001 and 0.0"),
        ({"optimizer__weight_decay": 0.1}, "optimizer.weight_decay 0.0 and 0.1"),
        ({"data__tokenizer": "org/own"}, "data.tokenizer bytes and org/own"),
    ],
)
def test_runs_that_were_asked_to_learn_otherwise_are_told_by_what(trained, changes, said):
    """On random tokens the losses of ten steps are the same without any learning rate."""
    (line,) = told(
        trained([6.0, 6.0], batch__micro=2, data__name="text"),
        trained([6.0, 6.0], ranks=2, data__name="text", **changes),
    )
    assert line == f"not asked for the same training: deepspeed and deepspeed dp 2 with Naive, by {said}"


def test_late_steps_and_the_noise_of_bf16_are_forgiven(trained):
    early = [1.0] * COMPARED_STEPS
    assert "the same training" in told(trained([*early, 1.0], batch__micro=2), trained([*early, 2.0], ranks=2))[0]
    bf16 = {"precision__name": "bf16_pure"} | {
        f"precision__{name}": "bf16" for name in ("parameters", "gradients", "master", "moments")
    }
    assert told(trained([1.0], batch__micro=2, **bf16), trained([1.001], ranks=2, **bf16))[0].startswith("the same")


def test_runs_that_were_asked_for_other_work_are_not_compared(trained):
    assert told(trained([1.0], batch__micro=2), trained([5.0], ranks=2, batch__micro=3)) == []
    assert told(trained([1.0], batch__micro=2), trained([5.0], ranks=2, seed=1)) == []
    assert told(trained([1.0], batch__micro=2), trained([5.0], ranks=2, method="F")) == []


def test_a_run_without_samples_is_passed_over(trained):
    one, two = trained([1.0], batch__micro=2), trained([1.0], ranks=2)
    (two.repeat(0) / "samples.1.jsonl").unlink()
    assert told(one, two) == []
