"""Samples of a replica that dies: they only grow, each step has one line, and missed steps have no positions."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.launchers.rank.frame import Rank
from llmexp.launchers.torchft.samples_file import SamplesFile
from llmexp.record.samples import StepSample, read_samples

LAST = 6


def sample(step: int, loss: float = 3.0, at_s: float = 100.0) -> StepSample:
    times = {"t_start_s": step, "t_end_s": step + 0.5, "at_s": at_s + step + 0.5}
    return StepSample(index=step, warmup=False, positions=64, real_tokens=64, samples=1, loss=loss, **times)


def write(folder: Path, rank: int, steps: list[StepSample], ranks: int = 3) -> SamplesFile:
    with SamplesFile(Rank(rank, rank, ranks, folder), LAST) as file:
        for one in steps:
            file.write(one)
    return file


def lines(folder: Path, rank: int) -> list[StepSample]:
    return read_samples(folder / f"samples.{rank}.jsonl", StepSample)


def test_a_step_that_is_done_again_keeps_its_first_line(tmp_path: Path) -> None:
    write(tmp_path, 0, [sample(step) for step in (0, 1, 2)])
    write(tmp_path, 0, [sample(step, loss=9.0) for step in (1, 2, 3)])
    assert [(one.index, one.loss) for one in lines(tmp_path, 0)] == [(0, 3.0), (1, 3.0), (2, 3.0), (3, 9.0)]


def test_a_line_that_a_kill_left_unfinished_is_written_again(tmp_path: Path) -> None:
    write(tmp_path, 0, [sample(0)])
    with (tmp_path / "samples.0.jsonl").open("a") as file:
        file.write('{"index":1,"warm')
    write(tmp_path, 0, [sample(1)])
    assert [one.index for one in lines(tmp_path, 0)] == [0, 1]


def test_missed_steps_have_the_others_mean_loss_and_no_positions(tmp_path: Path) -> None:
    write(tmp_path, 0, [sample(step, loss=2.0) for step in range(LAST)])
    write(tmp_path, 1, [sample(step, loss=4.0) for step in range(LAST)])
    write(tmp_path, 2, [sample(0, at_s=90.0)])
    write(tmp_path, 2, [sample(4, loss=5.0)])
    found = lines(tmp_path, 2)
    assert [(one.index, one.positions, one.loss) for one in found] == [
        (0, 64, 3.0),
        *((step, 0, 3.0) for step in (1, 2, 3)),
        (4, 64, 5.0),
    ]
    # The replica's own origin was 10 s earlier.
    assert found[1].t_end_s == pytest.approx(11.5)
    assert found[1].at_s == 101.5


def test_a_step_that_two_replicas_missed_is_that_of_the_third(tmp_path: Path) -> None:
    write(tmp_path, 0, [sample(step, loss=2.0) for step in range(LAST)])
    for rank in (1, 2):
        write(tmp_path, rank, [sample(0)])
    for rank in (1, 2):
        write(tmp_path, rank, [sample(3)])
        assert [(one.index, one.loss) for one in lines(tmp_path, rank)] == [(0, 3.0), (1, 2.0), (2, 2.0), (3, 3.0)]


def test_steps_missed_at_the_end_are_caught_up_with_and_later_ones_left_out(tmp_path: Path) -> None:
    write(tmp_path, 0, [sample(step) for step in range(LAST + 2)], ranks=2)
    with SamplesFile(Rank(1, 1, 2, tmp_path), LAST) as file:
        file.catch_up(LAST)
        file.write(sample(LAST))
    assert [one.index for one in lines(tmp_path, 0)] == list(range(LAST))
    assert [(one.index, one.positions) for one in lines(tmp_path, 1)] == [(step, 0) for step in range(LAST)]
