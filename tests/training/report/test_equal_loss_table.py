"""Choices at equal loss, by runs of twenty steps whose losses are theirs step by step."""

from __future__ import annotations

import pytest

from llmexp.errors import ConfigError
from llmexp.record.result import Doubt, DoubtKind, Stability
from llmexp.record.samples import TrainingSummary
from llmexp.report.table import build_report
from llmexp.report.text import markdown
from llmexp.training.plan.training_plan import TrainingPlan

BUDGET = {"measure__tokens": 2000, "parallelism__dp": 1, "data__seq_len": 100}
STEADY = Stability.model_construct(verdict="stable", reasons=[])
CONTENDED = Stability.model_construct(
    verdict="unstable", reasons=[Doubt.model_construct(kind=DoubtKind.CONTENTION, words="contention")]
)


def falling(share: float = 1.0) -> list[float]:
    """Return losses that fall from 10 in twenty steps, slower with a larger share."""
    return [10.0 - step / 2 / share for step in range(20)]


@pytest.fixture
def seeded(make_run, write_samples):
    """Make the runs of a choice with seeds 0, 1 and 2, whose steps take so many seconds each."""

    def make(method="Naive", share=1.0, steps_s=(1.0, 1.0, 1.0), judged=STEADY, seeds=(0, 1, 2), **changes):
        found = []
        for seed, step_s in zip(seeds, steps_s, strict=False):
            losses = [loss + 0.01 * seed for loss in falling(share)]
            metrics = {"tokens_per_s": 100 / step_s, "smoothed_final_loss": losses[-1], "trained_tokens": 2000.0}
            run = make_run(method, metrics=metrics, stability=judged, seed=seed, **BUDGET | changes)
            write_samples(run.repeat(0), 0, [(step_s, loss, 100, 100) for loss in losses])
            sizes = {"parameters": 1, "trainable_parameters": 1, "peak_rss_bytes": 1, "state_bytes": {}, "what_ran": {}}
            summary = TrainingSummary(rank=0, window_wall_s=1, time_to_first_step_s=1, **sizes)
            (run.repeat(0) / "rank.0.json").write_text(summary.model_dump_json())
            found.append(run)
        return found

    return make


def shown(runs, loss=None):
    report = build_report(runs)
    report = report.with_target_loss(loss) if loss else report
    tables = [table for table in report.sections[0].tables if table.title == "At equal loss"]
    return [dict(zip(table.headers, row, strict=True)) for table in tables for row in table.rows]


def test_choices_stand_beside_the_baseline_at_a_loss_that_all_of_its_seeds_reach(seeded):
    naive, half, quick = shown([*seeded(), *seeded("F", 2.0, (0.5, 0.5, 0.5)), *seeded("R", 1.0, (0.5, 0.5, 0.5))])
    # The worst seed has 2.52 at 80 %, after 16 steps.
    assert naive["run"] == "Naive"
    assert naive["seeds"] == "3"
    assert naive["tokens to loss 2.52"].startswith("1,600 (")
    assert naive["s to loss 2.52"].startswith("16.0 (")
    assert (naive["x baseline tokens"], naive["x baseline s"]) == ("", "")
    assert half["tokens to loss 2.52"] == half["s to loss 2.52"] == "not reached by 3 of 3"
    assert (half["x baseline tokens"], half["x baseline s"]) == ("", "")
    assert quick["x baseline tokens"] == "1.00 (1.00 to 1.00): same"
    assert quick["x baseline s"] == "0.500 (0.500 to 0.500): faster"


def test_a_choice_is_named_by_the_words_of_its_own(seeded):
    runs = [*seeded(), *seeded("F")]
    for number, run in enumerate(runs):
        choice = ["method=F", "optimizer.lr=1e-3"] if number > 2 else ["method=Naive", "optimizer.lr=1e-4"]
        words = ["model=tiny", f"seed={number % 3}", *choice]
        run.write(run.plan_path, TrainingPlan.read(run.plan_path).model_copy(update={"overrides": words}))
    assert [row["run"] for row in shown(runs)] == ["Naive optimizer.lr=1e-4", "F optimizer.lr=1e-3"]


def test_a_loss_that_is_asked_for_needs_no_seeds_and_its_table_stands_once(seeded):
    runs = [*seeded(seeds=(0,)), *seeded("F", 2.0, seeds=(0,))]
    assert shown(runs) == []
    naive, slower = shown(runs, 6.0)
    assert (naive["tokens to loss 6"], slower["tokens to loss 6"]) == ("900", "1,700")
    assert slower["x baseline tokens"] == "", "one seed does not tell"
    assert markdown(build_report(runs).with_target_loss(6.0)).count("At equal loss") == 1
    with pytest.raises(ConfigError, match=r"--loss 6: none of these runs has a budget: measure.tokens="):
        build_report([]).with_target_loss(6.0)


def test_the_seconds_of_disturbed_runs_are_not_judged_and_their_tokens_are(seeded):
    _, other = shown([*seeded(), *seeded("F", 0.5, (0.5, 0.5, 0.5), judged=CONTENDED)])
    assert other["x baseline tokens"].endswith(": fewer")
    assert other["x baseline s"].endswith(": disturbed")
    assert other["tokens/s"] == "200 !"


def test_an_emulated_choice_has_tokens_and_no_seconds(seeded):
    runs = seeded("F", 0.5)
    for run in runs:
        run.write(run.result_path, run.result().model_copy(update={"evidence": "emulated"}))
    _, other = shown([*seeded(), *runs])
    assert other["x baseline tokens"].endswith(": fewer")
    assert other["tokens/s"] == other["s to loss 2.52"] == "emulated"
    assert other["x baseline s"] == ""


def test_only_seeds_that_the_baseline_has_count_and_other_trainings_stand_apart(seeded):
    assert [row["seeds"] for row in shown([*seeded(), *seeded("F", seeds=(1, 2, 7))])] == ["3", "2"]
    assert shown([*seeded(), *seeded("F", seeds=(7,))]) == []
    assert shown([*seeded(), *seeded("F", measure__tokens=1900)]) == []
