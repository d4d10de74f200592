"""When a measured window ends: by hand, by chance, and on two real ranks."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from statistics import harmonic_mean

import pytest
from planning import make_plan

from llmexp.analysis.quantity import Measurement
from llmexp.analysis.stability import interval, is_known_to
from llmexp.analysis.window import duration_s
from llmexp.launch.run import run_one
from llmexp.launchers.training.stopping import blocks, steps_until
from llmexp.record.result import RunResult
from llmexp.record.samples import StepSample, read_samples
from llmexp.sweep.measuring import folder_of
from llmexp.training.config import TrainingMeasureConfig

Measured = tuple[RunResult, list[list[StepSample]]]


def protocol(**fields: float) -> TrainingMeasureConfig:
    return make_plan("measure=adaptive").config.measure.model_copy(update=fields)


def test_looks_lie_further_and_further_apart_and_no_step_is_left_out() -> None:
    assert [(block.start, block.stop) for block in blocks(protocol())] == [
        (30, 70),
        (70, 80),
        (80, 93),
        (93, 109),
        (109, 130),
    ]
    assert [len(block) for block in blocks(protocol(min_steps=1, steps=8))] == [1, 1, 1, 1, 1, 3]
    assert len(list(blocks(protocol(steps=10_000)))) < 30


def test_a_fixed_protocol_and_a_short_window_are_one_piece() -> None:
    assert list(blocks(protocol(stop_at_interval_share=None))) == [range(30, 130)]
    assert list(blocks(protocol(steps=20))) == [range(30, 50)]


@pytest.mark.parametrize("scatter", [0.02, 0.04])
def test_looking_often_errs_no_more_than_1_time_in_20(scatter: float) -> None:
    """Whoever stops when the interval happens to be narrow would err more often; so each look asks for a wider one."""
    pieces, draw, held, tries = list(blocks(protocol(steps=200))), random.Random(3), 0, 200
    for _ in range(tries):
        times_s: list[float] = []
        for block in pieces:
            times_s += [draw.gauss(1, scatter) for _ in block]
            speed = Measurement(len(times_s) / sum(times_s), tuple(1 / time_s for time_s in times_s))
            if is_known_to([speed], 0.01, len(pieces) - 1):
                break
        found = interval([speed], 1 - 0.05 / (len(pieces) - 1))
        assert found is not None
        held += abs(found.mean - 1) < found.half_width
    assert held / tries > 0.92


@pytest.mark.parametrize("scatter", [0.0, 0.1])
def test_a_window_of_seconds_ends_with_the_step_whose_end_is_nearest(scatter: float) -> None:
    draw = random.Random(1)
    for asked_s in (0.4, 1.0, 7.3, 100.0):
        wall_s, taken, block, looks = 0.0, 0, 1, 0
        while block:
            wall_s += sum(1 + draw.uniform(-scatter, scatter) for _ in range(block))
            taken, looks = taken + block, looks + 1
            block = steps_until(asked_s, wall_s, taken)
        assert taken == 1 or abs(wall_s - asked_s) <= 0.5 + 2 * scatter
        assert looks <= 10


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., Measured]:
    """Run a protocol on two real ranks; return its result and the measured steps of each rank."""

    def run(*words: str) -> Measured:
        ranks = (
            "hardware=cpu",
            "engine=torch",
            "engine.launcher=fork",
            "parallelism.dp=2",
            "model.num_layers=1",
            "measure.threads_per_rank=1",
        )
        plan = make_plan(*ranks, "data.seq_len=64", f"sweep.outputs={tmp_path}", "measure.profile=false", *words)
        result = run_one(plan, folder := folder_of(plan))
        assert result.status == "success", result.reason
        samples = [read_samples(folder.repeat(0) / f"samples.{rank}.jsonl", StepSample) for rank in (0, 1)]
        return result, [[sample for sample in rank if not sample.warmup] for rank in samples]

    return run


@pytest.mark.ranks
def test_ranks_end_together_at_the_first_look_at_which_the_interval_is_narrow_enough(
    measured: Callable[..., Measured],
) -> None:
    share, words = 0.9, ("measure.steps=60", "measure.min_steps=20")
    result, (mine, other) = measured(*words, f"measure.stop_at_interval_share={share}")
    steps = [sample.index for sample in mine]
    assert [sample.index for sample in other] == steps
    speeds = [1 / duration_s(sample) for sample in mine]
    # How soon is up to the machine: a step that it holds back widens the interval.
    looks = [
        block.stop - 5
        for block in blocks(protocol(warmup_steps=5, steps=60, min_steps=20, stop_at_interval_share=share))
    ]
    seen = [(look, Measurement(harmonic_mean(speeds[:look]), tuple(speeds[:look]))) for look in looks]
    known = (look for look, speed in seen if is_known_to([speed], share, len(looks) - 1))
    assert steps == list(range(5, 5 + next(known, 60)))
    rate, step_time_s = result.metrics["tokens_per_s"], result.metrics["step_time_s"]
    assert rate is not None
    assert step_time_s is not None
    inside, taken = result.metrics["timed_share_of_wall"], result.metrics["measured_steps"]
    assert inside is not None
    assert taken is not None
    assert taken.mean == len(steps)
    assert 0.5 < inside.mean <= 1
    # The window's wall time leaves out the time in which the ranks agree: it is hardly longer than its steps.
    # Where the ranks are slow in turn it is shorter than the slowest of each step together, and the rate higher.
    assert rate.mean > 0.5 * 2 * 64 / step_time_s.mean


@pytest.mark.ranks
def test_ranks_train_for_the_seconds_of_a_budget_whatever_the_number_of_steps(
    measured: Callable[..., Measured],
) -> None:
    result, (mine, other) = measured("measure.duration_s=2", "measure.steps=1", "data=text")
    assert [sample.index for sample in mine] == [sample.index for sample in other] == list(range(5, 5 + len(mine)))
    assert len(mine) > 1
    window_s = mine[-1].t_end_s - mine[0].t_start_s
    longest_s = max(map(duration_s, mine))
    assert window_s > 2 - longest_s, "all of the time is used"
    assert (len(mine) - 1) * min(map(duration_s, mine)) < 2, "and no more steps are taken than fit into it"
    trained, loss = result.metrics["trained_tokens"], result.metrics["smoothed_final_loss"]
    assert trained is not None
    assert loss is not None
    assert trained.mean == (5 + len(mine)) * 2 * sum(sample.real_tokens for sample in mine) / len(mine)


@pytest.mark.slow
@pytest.mark.ranks
def test_ranks_take_all_steps_where_the_interval_stays_wider(measured: Callable[..., Measured]) -> None:
    _, ranks = measured("measure.steps=60", "measure.min_steps=20", "measure.stop_at_interval_share=1e-9")
    assert [[sample.index for sample in rank] for rank in ranks] == [list(range(5, 65))] * 2
