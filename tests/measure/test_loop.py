from __future__ import annotations

import itertools
import time
from dataclasses import replace
from io import StringIO

import pytest
import torch

from llmexp.measure.batch import MicroBatch, Packing
from llmexp.measure.clock import HostClock, Mark
from llmexp.measure.loop import StepLoop, digest_of
from llmexp.record.samples import StepSample, digest_text
from llmexp.training.report.trained import added

ROWS = [[5, 3, 9, 250], [1, 1, 7, 2], [0, 0, 0, 0], [4, 4, 4, 4]]


class Recorder:
    """A training step that notes its calls; its loss is the batch's mean id."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        self.calls.append("forward")
        return batch.input_ids.float().mean()

    def backward(self, loss: torch.Tensor) -> None:
        self.calls.append("backward")

    def step(self) -> None:
        self.calls.append("step")


class SlowMark:
    """A mark of a device that reaches it only when asked to synchronize."""

    def __init__(self, clock: SlowClock) -> None:
        self.clock, self.index = clock, next(clock.counter)

    def passed(self) -> bool:
        return self.index < self.clock.reached

    def seconds_since(self, earlier: Mark) -> float:
        assert isinstance(earlier, SlowMark)
        return float(self.index - earlier.index)


class SlowClock:
    def __init__(self) -> None:
        self.counter, self.reached = itertools.count(), 0

    def mark(self) -> SlowMark:
        return SlowMark(self)

    def synchronize(self) -> None:
        self.reached = 10**6


def passes(*ids: list[int], real: int | None = None) -> list[MicroBatch]:
    tensors = [torch.tensor([row]) for row in ids]
    return [MicroBatch(tensor, tensor, tensor.numel() if real is None else real, 3) for tensor in tensors]


def samples(file: StringIO) -> list[StepSample]:
    return [StepSample.model_validate_json(line) for line in file.getvalue().splitlines()]


def test_a_step_is_all_its_passes_and_counts_positions_and_real_tokens_apart() -> None:
    recorder, file = Recorder(), StringIO()
    loop = StepLoop(recorder, HostClock(), file, lambda: 7)
    loop.run(iter([passes([2, 4, 6, 8], [0, 0, 0, 4], real=3)]), range(5, 6), warmup=False)
    assert recorder.calls == ["forward", "backward", "step"] * 2
    (sample,) = samples(file)
    assert (sample.index, sample.warmup, sample.positions, sample.real_tokens, sample.memory_bytes) == (
        5,
        False,
        8,
        6,
        7,
    )
    assert sample.samples == 6
    assert sample.loss == 3.0


def test_a_step_counts_squared_lengths_where_all_its_passes_know_their_records() -> None:
    file, (first, second) = StringIO(), passes([2, 4, 6, 8], [0, 0, 0, 4])
    packing = Packing(first.input_ids, first.input_ids, (1, 2, 1))
    known = [replace(first, packing=packing, record_squares=1 + 4), replace(second, record_squares=9)]
    StepLoop(Recorder(), HostClock(), file, lambda: 0).run(iter([known, [known[0], second]]), range(2), warmup=True)
    assert [(sample.record_squares, sample.bounded_squares) for sample in samples(file)] == [
        (14, 1 + 4 + 1 + 16),
        (None, 22),
    ]


def test_phases_add_up_to_the_step() -> None:
    file = StringIO()
    StepLoop(Recorder(), HostClock(), file, lambda: 0).run(iter([passes([1], [2])] * 3), range(3), warmup=True)
    for sample in samples(file):
        assert sample.phases_s is not None
        assert set(sample.phases_s) == {"forward", "backward", "optimizer"}
        assert 0 < sum(sample.phases_s.values()) <= sample.t_end_s - sample.t_start_s


def test_without_phases_only_the_step_is_timed() -> None:
    file = StringIO()
    loop = StepLoop(Recorder(), HostClock(), file, lambda: 0)
    loop.phases = False
    loop.run(iter([passes([1])]), range(1), warmup=True)
    assert samples(file)[0].phases_s is None


def test_a_sample_is_written_only_when_the_device_has_finished_the_step() -> None:
    file, clock, seen = StringIO(), SlowClock(), []

    class Watching(Recorder):
        def forward(self, batch: MicroBatch) -> torch.Tensor:
            seen.append(len(samples(file)))
            return super().forward(batch)

    loop = StepLoop(Watching(), clock, file, lambda: 0)
    batches = iter([passes([1])] * 3)
    clock.synchronize = lambda: None  # type: ignore[method-assign]
    loop.run(batches, range(2), warmup=True)
    assert samples(file) == []
    clock.reached = 10**6
    loop.run(batches, range(2, 3), warmup=True)
    assert seen == [0, 0, 0]
    assert [sample.index for sample in samples(file)] == [0, 1, 2]
    assert [sample.t_start_s for sample in samples(file)] == sorted(sample.t_start_s for sample in samples(file))


def test_the_wall_time_covers_all_steps() -> None:
    file = StringIO()
    wall_s = StepLoop(Recorder(), HostClock(), file, lambda: 0).run(iter([passes([1])] * 4), range(4), warmup=False)
    found = samples(file)
    assert wall_s >= found[-1].t_end_s - found[0].t_start_s > 0


def test_each_step_says_when_it_ended_by_the_clock_of_the_machine() -> None:
    file, began_s = StringIO(), time.time()
    loop = StepLoop(Recorder(), HostClock(), file, lambda: 0)
    for _ in range(2):
        loop.run(iter([passes([1])] * 2), range(2), warmup=False)
    ended, told = time.time(), [sample.at_s for sample in samples(file) if sample.at_s]
    assert len(told) == 4
    assert told == sorted(told)
    assert began_s - 0.001 <= told[0] <= told[-1] <= ended + 0.001


def test_a_clock_that_is_set_between_two_parts_moves_only_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    file, now_s = StringIO(), [1000.0]
    monkeypatch.setattr(time, "time", lambda: now_s[0])
    loop = StepLoop(Recorder(), HostClock(), file, lambda: 0)
    for now_s[0] in (1000.0, 5000.0):
        loop.run(iter([passes([1])]), range(1), warmup=False)
    assert [sample.at_s for sample in samples(file)] == [pytest.approx(1000, abs=1), pytest.approx(5000, abs=1)]


def test_each_warmup_step_tells_which_sequences_it_read_and_no_measured_step_does() -> None:
    file = StringIO()
    loop = StepLoop(Recorder(), HostClock(), file, lambda: 0)
    loop.digests = True
    steps = [passes([1, 2], [3, 4]), passes([3, 4], [1, 2]), passes([3, 4], [1, 5]), passes([1, 2])]
    loop.run(iter(steps[:3]), range(3), warmup=True)
    loop.run(iter(steps[3:]), range(3, 4), warmup=False)
    first, second, third, measured = (sample.sequences for sample in samples(file))
    assert first == second != third
    assert first
    assert len(first) == 16
    assert measured is None


def batch(ids, labels=None) -> MicroBatch:
    ids = torch.tensor(ids)
    return MicroBatch(ids, ids if labels is None else torch.tensor(labels), ids.numel(), len(ids))


def text_of(*passes: MicroBatch) -> str:
    return digest_text(int(digest_of(passes)))


def test_ranks_and_passes_may_share_the_sequences_out_as_they_like():
    whole = text_of(batch(ROWS))
    assert whole == text_of(batch(ROWS[2:]), batch(ROWS[:2]))
    assert whole == added([text_of(batch(ROWS[3:])), text_of(batch(ROWS[1:3]), batch(ROWS[:1]))])


def test_other_sequences_tokens_labels_and_orders_of_tokens_have_other_digests():
    whole = text_of(batch(ROWS))
    others = [
        text_of(batch(ROWS[:3])),
        text_of(batch([*ROWS[:3], [4, 4, 4, 5]])),
        text_of(batch([[3, 5, 9, 250], *ROWS[1:]])),
        text_of(batch(ROWS, [[5, 3, 9, -100], *ROWS[1:]])),
        text_of(batch([*ROWS, ROWS[0]])),
        # Tokens that change places between two sequences leave the sum of all tokens at each place as it was.
        text_of(batch([[1, 3, 9, 250], [5, 1, 7, 2], *ROWS[2:]])),
        text_of(batch([row[:3] for row in ROWS])),
    ]
    assert len({whole, *others}) == 1 + len(others)


def test_digests_of_many_sequences_do_not_collide():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, (20_000, 8), generator=generator)  # few tokens, so that many sequences are neighbors
    different = {tuple(row) for row in ids.tolist()}
    digests = {int(digest_of([MicroBatch(row[None], row[None], 8, 1)])) for row in torch.tensor(sorted(different))}
    assert len(digests) == len(different)
