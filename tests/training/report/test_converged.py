from math import nan

import pytest
from matplotlib.image import imread

from llmexp.record.samples import TrainingSummary
from llmexp.report.plots import draw_report
from llmexp.report.table import build_report

BUDGET = {"measure__tokens": 4000, "parallelism__dp": 1, "data__seq_len": 100}
FALLING = [5.0, 4.0, 3.0, *[2.0] * 37]
SLOWER = [5.0, 4.0, *[3.0] * 37, 2.5]


@pytest.fixture
def trained(make_run, write_samples):
    """A run of 40 steps with these losses, a step lasting so many seconds."""

    def make(losses, step_s=1.0, method="Naive", reason="", what_ran=None, **changes):
        metrics = {"tokens_per_s": 10.0, "smoothed_final_loss": losses[-1], "trained_tokens": 100.0 * len(losses)}
        run = make_run(method, metrics=metrics, reason=reason, **BUDGET | changes)
        write_samples(
            run.repeat(0),
            0,
            [
                (step_s, loss, 100 * changes.get("batch__micro", 1), 100 * changes.get("batch__micro", 1))
                for loss in losses
            ],
        )
        summary = TrainingSummary(
            rank=0,
            window_wall_s=1,
            time_to_first_step_s=1,
            parameters=1,
            trainable_parameters=1,
            peak_rss_bytes=1,
            state_bytes={},
            what_ran={},
        )
        (run.repeat(0) / "rank.0.json").write_text(summary.model_dump_json())
        if what_ran:
            run.write(run.result_path, run.result().model_copy(update={"what_ran": what_ran}))
        return run

    return make


def shown(*runs):
    found = {column.header: list(column.cells) for column in build_report(runs).sections[0].columns}
    return [found.get(header) for header in ("final loss", "loss over baseline", "s to loss")]


def test_losses_after_a_budget_of_seconds_compare_with_others_of_that_budget_alone(trained):
    of_time = {"measure__tokens": None, "measure__duration_s": 20.0}
    runs = [trained(FALLING, **of_time), trained(SLOWER[:20], 1.0, "R", **of_time), trained(SLOWER, method="F")]
    final, over, _ = shown(*runs)
    assert final == ["2.0000", "3.0000", "2.7500"]
    assert over == ["", "+1.0000", ""], (
        "at the 2,000 tokens that both have read; F, of a budget of tokens, stands alone"
    )


def test_each_run_is_held_against_the_first_naive_one_at_equal_tokens(trained):
    # 2 of 40 steps are averaged: the baseline has 2.0 after 5 steps, F, whose steps are half as long, too;
    # R ends at (3 + 2.5) / 2.
    runs = [trained(FALLING, 0.5, "F"), trained(FALLING), trained(SLOWER, method="R")]
    final, over, seconds = shown(*runs)
    assert final == ["2.0000", "2.0000", "2.7500"]
    assert over == ["+0.0000", "", "+0.7500"]
    assert seconds == ["2.50", "5.00", "never"]
    assert f"baseline: Naive ({build_report(runs).rows[1].id})" in "\n".join(build_report(runs).sections[0].legend)


def test_other_batches_compare_at_equal_tokens(trained):
    # Half as many steps of twice the tokens: one of 20 is averaged, and its 3.0 is that of 4,000 tokens.
    _, over, seconds = shown(trained(FALLING), trained([5.0, *[3.0] * 19], batch__micro=2))
    assert (over, seconds) == (["", "+1.0000"], ["5.00", "never"])


def test_runs_of_one_method_are_told_apart_by_what_was_asked_for(trained):
    optimizer = {"name": "adamw", "implementation": "torch", "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0}
    runs = [trained(FALLING, optimizer=optimizer | {"lr": lr}) for lr in (1e-3, 1e-4)]
    table = {column.header: column.cells for column in build_report(runs).sections[0].columns}
    assert [cell.partition("'lr': ")[2] for cell in table["asked for"]] == ["0.001}", "0.0001}"]
    assert "asked for" not in {
        column.header for column in build_report([trained(FALLING), trained(FALLING, method="F")]).sections[0].columns
    }


def test_other_data_seeds_and_budgets_have_baselines_of_their_own(trained):
    runs = [trained(FALLING), trained(SLOWER, seed=1), trained(SLOWER, measure__tokens=5000)]
    assert shown(*runs)[1] is None
    assert len([one for one in build_report(runs).sections[0].converged.values() if one.is_baseline]) == 3


def test_a_program_of_ones_own_is_held_against_its_kind_alone(trained, tmp_path):
    (tmp_path / "train.py").write_text("")
    script = {"name": "script", "launcher": "spawn", "options": {"command": str(tmp_path / "train.py")}}
    runs = [trained(FALLING), trained(SLOWER, engine=script), trained(FALLING, engine=script, optimizer__lr=1e-3)]
    assert shown(*runs)[1] == ["", "", "-0.7500"]


def test_a_diverged_run_says_so_and_is_no_baseline(trained):
    lost = [*FALLING[:10], *[nan] * 30]
    runs = [
        trained(lost, reason="the loss diverged: no finite number at step 10 of repeat 0"),
        trained(FALLING, method="F"),
    ]
    assert shown(*runs) == [["diverged (1)", "2.0000"], None, ["never", "5.00"]]
    assert build_report(runs).sections[0].notes == ["the loss diverged: no finite number at step 10 of repeat 0"]
    table = {column.header: column.cells for column in build_report(runs).sections[0].columns}
    assert table["tokens/s"] == ("10.0 (1)", "10.0")


def test_text_that_was_read_twice_is_said(trained):
    runs = trained(FALLING, what_ran={"data_passes": 2.5}), trained(FALLING, method="F", what_ran={"data_passes": 1.0})
    said = "\n".join(build_report(runs).sections[0].legend)
    assert "all of it was read by Naive 2.5 times" in said


def test_without_a_budget_nothing_of_this_is_shown(make_run, write_samples, tmp_path):
    run = make_run(metrics={"tokens_per_s": 1.0})
    write_samples(run.repeat(0), 0, [(1.0, 5.0)] * 5)
    assert shown(run) == [None, None, None]
    assert draw_report(build_report([run]), tmp_path / "report.png") == [tmp_path / "report.png"]


def test_a_run_whose_samples_are_gone_has_no_curve(trained):
    run = trained(FALLING)
    (run.repeat(0) / "samples.0.jsonl").unlink()
    assert shown(run, trained(FALLING, method="F"))[0] == ["", "2.0000"]


def test_a_line_a_run_over_tokens_and_over_time(trained, figures, tmp_path):
    lost = [*FALLING[:10], *[nan] * 30]
    written = draw_report(
        build_report([trained(FALLING), trained(FALLING, 0.5, "F"), trained(lost, method="R")]), tmp_path / "report.png"
    )
    assert [path.name for path in written] == ["report.png", "report_loss.png"]
    assert imread(written[1]).shape[1] == 1260
    tokens, seconds = figures[-1].axes
    assert [list(line.get_xdata())[:3] for line in tokens.lines[:2]] == [[100, 200, 300]] * 2
    assert [list(line.get_xdata())[:3] for line in seconds.lines[:2]] == [[1.0, 2.0, 3.0], [0.5, 1.0, 1.5]]
    assert list(tokens.lines[0].get_ydata())[:4] == [5.0, 4.5, 3.5, 2.5]
    told = [text.get_text() for text in figures[-1].legends[0].texts]
    assert told == ["Naive: 2.000 (baseline, dotted)", "F: 2.000", "R: diverged at step 10"]
    assert tokens.get_title(loc="left") == "coincide: Naive, F"


def test_a_run_that_explodes_leaves_the_others_to_be_seen(trained, figures, tmp_path):
    draw_report(build_report([trained(FALLING), trained([5.0, *[1e6] * 39], method="F")]), tmp_path / "report.png")
    assert figures[-1].axes[0].get_ylim()[1] == pytest.approx(5.5)


def test_programs_are_told_apart_by_their_short_names(trained, tmp_path):
    (tmp_path / "train.py").write_text("")
    script = {"name": "script", "launcher": "spawn"}
    runs = [
        trained(FALLING, engine=script | {"options": {"command": f"{tmp_path / 'train.py'} --seed 1 --lr {lr}"}})
        for lr in (1, 2)
    ]
    labels = [one.label for one in build_report(runs).sections[0].converged.values()]
    assert [label.partition(" engine=")[0] for label in labels] == [
        "Naive script train.py --lr 1",
        "Naive script train.py --lr 2",
    ]
