"""A program's lines as they are written, and what the lines of known programs say of a step."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from planning import make_plan

from llmexp.launchers.script.lines import Lines, StepLines
from llmexp.launchers.script.program_run import ReportError

MEGATRON = (
    " [2024-07-01 10:00:00] iteration        5/      10 | consumed samples: "
    "          20 | elapsed time per iteration (ms): 812.3 | "
    "learning rate: 1.500000E-04 | global batch size:     4 | lm loss: 1.034718E+01 | loss scale: 1.0 | grad norm: "
    "2.861 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)
TITAN = (
    "[titan] 2026-11-21 10:00:00,123 - root - INFO - \x1b[31mstep:  5  \x1b[32mloss: "
    " 8.12345  \x1b[38;2;180;60;0mgrad_norm:  1.4250  "
    "\x1b[38;2;54;234;195mmemory:  0.51GiB(0.64%)  \x1b[34mtps: 1,234  \x1b[36mtflops: 0.07  \x1b[35mmfu: "
    "0.02%\x1b[39m\n"
)

NANOGPT = "iter 5: loss 10.8211, time 24.94ms, mfu -100.00%"
LLMQ = "[T] step     5 [ 1.0%] | time:   412 ms | norm   1.425000 | loss   8.123450 | tps 39768 | sol 61.2%"


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Callable[[], io.BytesIO]:
    """Put a file in the place of standard output, as a program has it."""

    def replace() -> io.BytesIO:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written := io.BytesIO()))
        return written

    return replace


@pytest.fixture
def steps(tmp_path: Path):
    """The reader of step lines of a run of 4 sequences of 8 a step, over two ranks."""
    (tmp_path / "train.py").touch()

    def reader(option: str) -> StepLines:
        words = (
            "hardware=cpu",
            "parallelism.dp=2",
            "batch.micro=2",
            "data.seq_len=8",
            f"engine.options.command={tmp_path / 'train.py'}",
        )
        return StepLines(make_plan("engine=script", *words, f"engine.options.{option}"))

    return reader


def test_a_line_is_taken_when_it_is_written_whoever_holds_the_stream(output: Callable[[], io.BytesIO]):
    written = output()
    handler = logging.StreamHandler(sys.stdout)
    taken: list[str] = []
    lines = Lines(taken.append)
    print("step", 1, end="")
    assert taken == []
    print(" loss", 2.5)
    sys.stdout.write("\r 10%\r 20%\n")
    handler.emit(logging.LogRecord("a", logging.INFO, "", 0, "step %d", (2,), None))
    assert taken == ["step 1 loss 2.5", " 10%", " 20%", "step 2"]
    assert (lines.read, lines.last) == (4, "step 2")
    sys.stdout.flush()
    assert written.getvalue() == b"step 1 loss 2.5\n\r 10%\r 20%\nstep 2\n"


@pytest.mark.parametrize(
    ("preset", "line", "loss"),
    [
        ("megatron_lm", MEGATRON, 10.34718),
        ("torchtitan", TITAN, 8.12345),
        ("nanogpt", NANOGPT, 10.8211),
        ("llmq", LLMQ, 8.12345),
    ],
)
def test_the_lines_of_known_programs_tell_a_step(
    steps, output: Callable[[], io.BytesIO], preset: str, line: str, loss: float
):
    reader = steps(f"preset={preset}")
    output()
    taken: list[str] = []
    Lines(taken.append)
    print(line)
    told = reader(taken[0])
    assert told["step"] == "5"
    assert reader.loss_of_new(told) == loss


@pytest.mark.parametrize(
    ("preset", "line"),
    [
        ("megatron_lm", " validation loss at iteration 10 | lm loss value: 1.033906E+01 | lm loss PPL: 3.091769E+04 |"),
        ("torchtitan", "validate step:  5  loss:  8.1234  memory:  0.51GiB(0.64%)"),
        ("nanogpt", "step 5: train loss 4.2874, val loss 4.2823"),
        ("llmq", "[V] step     5 [ 1.0%] | time:   812 ms | eval   8.223450 | train  8.123450 | tps 79768"),
        ("torchtitan", "step:  5  loss: -1.00000  grad_norm:  1.4250"),
    ],
)
def test_other_lines_of_theirs_do_not(steps, preset: str, line: str):
    assert steps(f"preset={preset}")(line) is None


def test_a_step_that_is_told_twice_is_one(steps):
    reader = steps("pattern='(?P<step>[0-9]+) (?P<loss>[0-9.]+)'")
    assert [reader.loss_of_new(reader(line)) for line in ("7 2.5", "7 2.5", "8 2.25")] == [2.5, None, 2.25]


@pytest.mark.parametrize(
    ("pattern", "lines", "reason"),
    [
        (
            "(?P<step>[0-9]+) (?P<loss>.*)",
            ["10 1.0", "20 0.5"],
            "step 20 after 10, but llmexp needs every step: set its log interval to 1",
        ),
        ("(?P<step>[0-9]+) (?P<loss>.*)", ["10 1.0", "1 0.5"], "step 1 after 10"),
        (
            "(?P<loss>.*) (?P<samples>.*)",
            ["1.0 8"],
            "printed 8 samples a step, but the configuration has 4 over all ranks",
        ),
        (
            "(?P<loss>.*) (?P<tokens>.*)",
            ["1.0 1,024"],
            "printed 1,024 tokens a step, but the configuration has 32 over all ranks",
        ),
        (
            "loss (?P<loss>.*)",
            ["loss is high"],
            "the group loss of engine.options.pattern matched 'is high' in a line of the program",
        ),
        ("loss(?P<loss> [0-9]+)?", ["losses"], "without its group loss"),
    ],
)
def test_steps_that_cannot_be_counted_are_refused(steps, pattern: str, lines: list[str], reason: str):
    reader = steps(f"pattern='{pattern}'")
    *fine, last = map(reader, lines)
    for told in fine:
        reader.loss_of_new(told)
    with pytest.raises(ReportError) as raised:
        reader.loss_of_new(last)
    assert reason in str(raised.value)
