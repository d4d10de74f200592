"""What failures cost, by steps that are made up: two replicas, steps of 1 s, 10 measured after one of warm-up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.launchers.torchft.account import KilledRun, settle
from llmexp.launchers.torchft.lives import StepRecord, steps_path
from llmexp.record.samples import StepSample, TrainingSummary
from llmexp.training.metrics import METRICS
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.repeats import RunConstants, read_training

LAST = 11


@pytest.fixture
def killed(tiny_plan: Callable[..., TrainingPlan]) -> Callable[..., TrainingPlan]:
    def plan(recovery: str) -> TrainingPlan:
        options = {"recovery": recovery, "kill_at_steps": [4], "checkpoint_every_steps": 2}
        engine = {"name": "torchft", "launcher": "spawn", "options": options}
        return tiny_plan(engine=engine, parallelism__dp=2, measure__warmup_steps=1, measure__steps=10)

    return plan


def took(step: int, begin: float, life: int = 0, **outcome: object) -> StepRecord:
    """A step of a second that was committed."""
    sample = StepSample(
        index=step,
        warmup=step < 1,
        t_start_s=begin,
        t_end_s=begin + 1,
        positions=64,
        real_tokens=64,
        loss=3.0,
        at_s=begin + 1,
    )
    made = StepRecord(step=step, life=life, began_s=begin, ended_s=begin + 1, replicas=2, sample=sample)
    return made.model_copy(update=outcome)


def died(step: int, begin: float) -> StepRecord:
    return StepRecord(step=step, life=0, began_s=begin)


def healed_run() -> list[list[StepRecord]]:
    """Replica 1 dies in step 4 at 4 s; 0 tries again from 4.5 to 9.5 s and is alone in 4 to 6; 1 heals in 6."""
    together = [took(step, step) for step in range(4)]
    tried = StepRecord(step=4, life=0, began_s=4, ended_s=4.5)
    alone = [took(4, 4.5, ended_s=9.5), took(5, 9.5), took(6, 10.5)]
    healing = StepRecord(step=6, life=1, began_s=10, ended_s=11.5, replicas=1, healed=True)
    rest = [took(step, step + 4.5) for step in range(7, LAST)]
    later = [one.model_copy(update={"life": 1}) for one in rest]
    return [[*together, tried, *alone, *rest], [*together, died(4, 4), healing, *later]]


def restarted_run() -> list[list[StepRecord]]:
    """Replica 1 dies in step 4 at 4 s; both begin again at 10 s with step 2."""
    together = [took(step, step, checkpoint=step % 2 == 1) for step in range(4)]
    again = [took(step, step + 8, life=1, checkpoint=step % 2 == 1) for step in range(2, LAST)]
    return [[*together, *again], [*together, died(4, 4), *again]]


def test_healing_costs_the_wait_and_the_steps_with_fewer_replicas(killed: Callable[..., TrainingPlan]) -> None:
    run = KilledRun(killed("heal"), healed_run())
    found = run.recovery()
    assert run.window_s == 14.5, "from step 1 at 1 s to the end of step 10 at 15.5 s"
    assert (found.healed, found.redone_steps, found.undisturbed_step_s) == (1, 1, 1.0)
    assert found.mean_replicas == (3 * 2 + 3 * 1 + 4 * 2) / 10
    (failure,) = found.failures
    assert (failure.step, failure.replica, failure.recovered) == (4, 1, True)
    # All replicas are back at the end of step 7, 8.5 s after the death: three halves of a step and a whole one.
    assert failure.lost_s == pytest.approx(8.5 - (3 * 0.5 + 1))


def test_a_restart_costs_the_way_back_and_the_steps_done_again(killed: Callable[..., TrainingPlan]) -> None:
    run = KilledRun(killed("restart"), restarted_run())
    found = run.recovery()
    assert run.window_s == 18.0, "from 1 s to the end of step 10 at 19 s"
    assert (found.healed, found.redone_steps, found.mean_replicas) == (0, 3, 2.0)
    # Step 4 is done at 13 s, 9 s after it had begun.
    assert [failure.lost_s for failure in found.failures] == [pytest.approx(9 - 1)]
    assert found.checkpoints == 2 * (2 + 4), "the file of both lists, after steps 1, 3 and again 3, 5, 7, 9"


def test_a_replica_that_does_not_come_back_in_the_window_has_not_recovered(
    killed: Callable[..., TrainingPlan],
) -> None:
    together = [took(step, step) for step in range(4)]
    alone = [took(step, step + 2) for step in range(4, LAST)]
    (failure,) = KilledRun(killed("heal"), [[*together, *alone], [*together, died(4, 4)]]).recovery().failures
    assert not failure.recovered
    assert failure.lost_s == pytest.approx(13 - 4 - 7 * 0.5)


def test_a_replica_that_comes_back_for_one_step_has_recovered_before_it_dies_again(
    killed: Callable[..., TrainingPlan],
) -> None:
    together = [took(step, step) for step in range(4)]
    ours = [took(4, 6), took(5, 7, ended_s=8.2), *(took(step, step + 4) for step in range(6, LAST))]
    theirs = [died(4, 4), took(5, 7), died(6, 8)]
    first, second = KilledRun(killed("heal"), [[*together, *ours], [*together, *theirs]]).recovery().failures
    assert (first.recovered, second.recovered) == (True, False)
    assert first.lost_s == pytest.approx(8.2 - 4 - 1.5)


def settled(folder: Path, plan: TrainingPlan, records: list[list[StepRecord]], digests: tuple[str, str]) -> int:
    for rank, of_rank in enumerate(records):
        steps_path(folder, rank).write_text("".join(one.model_dump_json() + "\n" for one in of_rank))
        samples = {one.step: one.sample for one in reversed(of_rank) if one.sample}
        lines = [samples[step].model_dump_json() + "\n" for step in sorted(samples)]
        (folder / f"samples.{rank}.jsonl").write_text("".join(lines))
        ended = TrainingSummary(
            rank=rank,
            window_wall_s=1,
            peak_rss_bytes=1,
            time_to_first_step_s=1,
            parameters=1,
            trainable_parameters=1,
            state_bytes={},
            what_ran={"state_digest": digests[rank]},
        )
        (folder / f"rank.{rank}.json").write_text(ended.model_dump_json())
    return settle(plan, folder)


def test_metrics_come_from_the_window_of_all_lives(tmp_path: Path, killed: Callable[..., TrainingPlan]) -> None:
    plan = killed("restart")
    assert settled(tmp_path, plan, restarted_run(), ("same", "same")) == 0
    repeat, facts = read_training(tmp_path, 2), RunConstants(world_size=2, dp=2)
    values = {name: found.value for name, spec in METRICS.items() if (found := spec.function(repeat, facts))}
    assert values["tokens_per_s"] == pytest.approx(10 * 128 / 18)
    assert values["undisturbed_tokens_per_s"] == 128
    assert values["goodput_share"] == pytest.approx(10 / 18)
    assert values["lost_to_failures_s"] == values["lost_per_failure_s"] == pytest.approx(8)
    assert (values["failures"], values["redone_steps"], values["healed_replicas"]) == (1, 3, 0)
    assert (values["mean_replicas"], values["measured_steps"], values["written_checkpoints"]) == (2, 10, 12)


def test_a_run_without_deaths_lost_nothing(tmp_path: Path, killed: Callable[..., TrainingPlan]) -> None:
    steps = [took(step, step) for step in range(LAST)]
    assert settled(tmp_path, killed("heal"), [steps, steps], ("same", "same")) == 0
    repeat, facts = read_training(tmp_path, 2), RunConstants(world_size=2, dp=2)
    values = {name: found.value for name, spec in METRICS.items() if (found := spec.function(repeat, facts))}
    assert (values["goodput_share"], values["lost_to_failures_s"], values["failures"]) == (1.0, 0.0, 0)
    assert "lost_per_failure_s" not in values


def test_weights_that_differ_in_the_end_fail_the_run(tmp_path: Path, killed: Callable[..., TrainingPlan]) -> None:
    assert settled(tmp_path, killed("heal"), healed_run(), ("one", "another")) == 1
    assert "different weights or moments" in (tmp_path / "failure.0.json").read_text()
