import pytest

from llmexp.analysis.window import duration_s, slowest
from llmexp.errors import RecordError
from llmexp.training.repeats import read_training

STEPS = [(1.0, 10, 10, 1.0)] * 3


def test_steps_are_told_apart_and_paired_over_ranks(write_repeat):
    repeat = read_training(write_repeat(0, {0: {}, 1: {}}, {0: STEPS, 1: [(2.0, 10, 10, 1.0)] * 3}, warmup=2), 2)
    assert [step[0].index for step in repeat.warmup] == [0, 1]
    assert [step[0].index for step in repeat.measured] == [2]
    assert duration_s(slowest(repeat.measured[0])) == 2.0


def test_a_rank_without_summary_did_not_finish(write_repeat):
    with pytest.raises(RecordError, match=r"rank\.1\.json is missing: this rank did not finish"):
        read_training(write_repeat(0, {0: {}}, {0: STEPS, 1: STEPS}), 2)


def test_a_rank_without_samples_took_no_step(write_repeat):
    with pytest.raises(RecordError, match=r"samples\.1\.jsonl is missing"):
        read_training(write_repeat(0, {0: {}, 1: {}}, {0: STEPS}), 2)


def test_ranks_must_take_the_same_steps(write_repeat):
    with pytest.raises(RecordError, match="rank 1 wrote 2 steps, rank 0 3"):
        read_training(write_repeat(0, {0: {}, 1: {}}, {0: STEPS, 1: STEPS[:2]}), 2)


def test_warmup_alone_is_no_measurement(write_repeat):
    with pytest.raises(RecordError, match="no measured step among 3 steps"):
        read_training(write_repeat(0, {0: {}}, {0: STEPS}, warmup=3), 1)


@pytest.mark.parametrize(
    ("summary", "duration", "message"),
    [
        ({"window_wall_s": 0.0}, 1.0, "window of 0.0 s is impossible"),
        ({}, 0.0, "step 0 took 0.0 s, which is impossible"),
    ],
)
def test_clocks_that_stand_still_are_errors(write_repeat, summary, duration, message):
    with pytest.raises(RecordError, match=message):
        read_training(write_repeat(0, {0: summary}, {0: [(duration, 10, 10, 1.0)] * 3}), 1)


def test_a_file_that_is_no_summary_is_named(write_repeat):
    folder = write_repeat(0, {0: {}}, {0: STEPS})
    (folder / "rank.0.json").write_text("{}")
    with pytest.raises(RecordError, match=r"rank\.0\.json is not a rank's summary"):
        read_training(folder, 1)
