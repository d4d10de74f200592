"""MFU of packed and of padded records, held against pairs of query and key that are counted one by one."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import numpy
import pytest
import torch
from planning import make_plan

from llmexp.analysis.window import Repeat
from llmexp.launchers.data.sequences import Example, Sequences
from llmexp.measure.batch import MicroBatch
from llmexp.measure.clock import HostClock
from llmexp.measure.loop import StepLoop
from llmexp.record.samples import StepSample, TrainingSummary
from llmexp.training import metrics
from llmexp.training.repeats import RunConstants

SEQ_LEN, RECORD = 4096, 200
PACKED = [RECORD] * (SEQ_LEN // RECORD)
PADDED = [1500]
PEAK, WINDOW_S = 312e12, 8.0
# Of Llama 7B: 6 FLOPs a parameter of matrices and head; attention's 6 products of 2 FLOPs an element and pair,
# in 32 layers of 4096 wide heads.
MATRICES = 6 * (32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096)
PER_PAIR = 6 * 2 * 32 * 4096


class Idle:
    """A training step that computes nothing."""

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        return torch.tensor(1.0)

    def backward(self, loss: torch.Tensor) -> None: ...

    def step(self) -> None: ...


def sample_of(rows: Sequence[Sequence[int]], *, isolated: bool) -> StepSample:
    """What a rank writes of a step on rows of records of these lengths."""
    examples = [[Example([1] * length, [1] * length) for length in row] for row in rows]
    batch = Sequences.of_rows(examples, SEQ_LEN, isolated=isolated).micro_batch(0, len(rows), torch.device("cpu"))
    file = StringIO()
    StepLoop(Idle(), HostClock(), file, lambda: 0).run(iter([[batch]]), range(1), warmup=False)
    return StepSample.model_validate_json(file.getvalue())


def pairs(row: Sequence[int]) -> float:
    """Pairs of a query and a key not behind it in the same record.

    A token and itself are half a pair, as in n x n / 2.
    """
    record = numpy.full(SEQ_LEN, -1)
    record[: sum(row)] = numpy.repeat(numpy.arange(len(row)), row)
    seen = (record[:, None] == record[None, :]) & (record >= 0)
    return float(numpy.tril(seen, -1).sum() + 0.5 * numpy.trace(seen))


def repeat(sample: StepSample, **what_ran: str) -> Repeat:
    times = {"window_wall_s": WINDOW_S, "time_to_first_step_s": 1.0}
    summary = TrainingSummary(
        rank=0, parameters=None, trainable_parameters=None, peak_rss_bytes=1, state_bytes={}, what_ran=what_ran, **times
    )
    return Repeat((summary,), (), ((sample,),))


def seven_b(*words: str) -> RunConstants:
    plan = make_plan(
        "model=7b", "hardware=a800", "parallelism.dp=1", "precision=bf16_pure", f"data.seq_len={SEQ_LEN}", *words
    )
    return RunConstants.of(plan)


@pytest.mark.parametrize(
    ("row", "isolated", "tokens"), [(PACKED, True, 4000), (PADDED, False, 1500)], ids=["packed", "padded"]
)
def test_attention_counts_within_records_and_padding_counts_in_matrices_alone(
    row: list[int], isolated: bool, tokens: int
) -> None:
    known, seen = seven_b("data=instructions", "task=finetune"), repeat(sample_of([row, row], isolated=isolated))
    attention = 2 * pairs(row) * PER_PAIR
    found = {
        name: getattr(metrics, name)(seen, known).value * WINDOW_S * PEAK
        for name in ("mfu", "useful_mfu", "mfu_full_attention")
    }
    assert found["mfu"] == pytest.approx(2 * SEQ_LEN * MATRICES + attention, rel=1e-12)
    assert found["useful_mfu"] == pytest.approx(2 * tokens * MATRICES + attention, rel=1e-12)
    assert found["mfu_full_attention"] == pytest.approx(2 * SEQ_LEN * (MATRICES + SEQ_LEN * PER_PAIR), rel=1e-12)
    assert metrics.tflops_per_s_per_gpu(seen, known).value == pytest.approx(found["mfu"] / WINDOW_S / 1e12)


def test_records_of_200_packed_to_4096_were_7_7_percent_too_high() -> None:
    known = seven_b()
    dense, packed = (metrics.mfu(repeat(sample_of([row], isolated=True)), known) for row in ([SEQ_LEN], PACKED))
    assert dense.value / packed.value == pytest.approx(1.077, abs=5e-4)


def test_full_sequences_count_as_the_plan_says() -> None:
    plan = make_plan("model=7b", "hardware=a800", "parallelism.dp=1", "precision=bf16_pure", f"data.seq_len={SEQ_LEN}")
    sample = sample_of([[SEQ_LEN]] * 2, isolated=False)
    uncounted = sample.model_copy(update={"record_squares": None, "bounded_squares": None})
    for one in (sample, uncounted):
        seen = repeat(one)
        assert metrics.mfu(seen, RunConstants.of(plan)).value == pytest.approx(
            2 * SEQ_LEN * plan.flops_per_token / WINDOW_S / PEAK, rel=1e-14
        )
        assert metrics.useful_mfu(seen, RunConstants.of(plan)) == metrics.mfu(seen, RunConstants.of(plan))
    assert metrics.hfu(repeat(uncounted), seven_b("method=F")) is None


def test_padding_without_a_count_of_records_has_no_mfu() -> None:
    uncounted = sample_of([PADDED], isolated=False).model_copy(update={"record_squares": None})
    found = [
        getattr(metrics, name)(repeat(uncounted), seven_b()) for name in ("tflops_per_s_per_gpu", "mfu", "useful_mfu")
    ]
    assert found == [None, None, None]


def hfu(method: str, kernel: str, *, row: list[int] = PACKED, isolated: bool = True) -> float:
    """FLOPs of one row."""
    found = metrics.hfu(
        repeat(sample_of([row], isolated=isolated), attention_kernel=kernel), seven_b(f"method={method}")
    )
    assert found is not None
    return found.value * WINDOW_S * PEAK


def test_hfu_counts_what_the_kernel_that_ran_computes() -> None:
    product, matrices = 2 * 32 * 4096, SEQ_LEN * MATRICES
    within = pairs(PACKED) + (SEQ_LEN - sum(PACKED)) ** 2 / 2  # padding is a record of its own
    assert hfu("Naive", "aten::_softmax") == pytest.approx(matrices + 6 * product * SEQ_LEN**2)
    assert hfu("F", "flash_fwd_kernel") == pytest.approx(matrices + 7 * product * within)
    assert hfu("F", "aten::_softmax") == pytest.approx(matrices + 6 * product * SEQ_LEN**2)
    # Padding behind one record is attended to.
    assert hfu("F", "flash_fwd_kernel", row=PADDED, isolated=False) == pytest.approx(
        matrices + 7 * product * SEQ_LEN**2 / 2
    )


def test_recomputation_leaves_out_each_layers_last_product() -> None:
    again = 2 * SEQ_LEN * 32 * (4 * 4096**2 + 2 * 4096 * 11008)
    assert hfu("F+R", "flash_fwd_kernel") - hfu("F", "flash_fwd_kernel") == pytest.approx(
        again + 2 * 2 * 32 * 4096 * (pairs(PACKED) + 96**2 / 2), rel=1e-9
    )
