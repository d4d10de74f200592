"""Programs whose lines Python does not write: C's stdio in the same process, and a child process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from planning import make_plan

from llmexp.launch.run import run_one
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.samples import StepSample, read_samples
from llmexp.sweep.measuring import folder_of

WAIT_S, STEPS = 0.2, 4
BY_LINE = "pattern='loss (?P<loss>[0-9.]+)'"
# As LLMQ's library prints, but for its call of fflush.
IN_C = f"""
import ctypes, time

print("Creating trainer...")
for step in range(50):
    time.sleep({WAIT_S})
    norm, loss = ctypes.c_double(1.0), ctypes.c_double(1 / (step + 1))
    line = b"[T] step %5d [%4.1f%%] | time:   412 ms | norm %10f | loss %10f | tps 39768\\n"
    ctypes.CDLL(None).printf(line, step, ctypes.c_double(2.0 * step), norm, loss)
"""

Run = Callable[..., tuple[RunResult, Path]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # with it, Python itself takes the buffer of C's stdout away

    def start(option: str, text: str) -> tuple[RunResult, Path]:
        (tmp_path / "train.py").write_text(text)
        plan = make_plan(
            *("engine=script", "engine.launcher=python", "model=tiny", "hardware=cpu", "data.seq_len=16"),
            *("measure=smoke", "measure.warmup_steps=1", f"measure.steps={STEPS}", f"sweep.outputs={tmp_path}"),
            *(f"engine.options.command={tmp_path / 'train.py'}", f"engine.options.{option}"),
        )
        result = run_one(plan, folder := folder_of(plan))
        assert result is not None
        return result, folder.path / "repeat.0"

    return start


def child(*options: str) -> str:
    return f"""
import subprocess, sys

program = "import time\\nfor step in range(20): time.sleep({WAIT_S}); print(f'loss {{1 / (step + 1):.6f}}')"
subprocess.run([sys.executable, *{options}, "-c", program], check=True)
"""


def assert_measured(result: RunResult, repeat: Path) -> None:
    assert result.status is RunStatus.SUCCESS, result.reason
    samples = read_samples(repeat / "samples.0.jsonl", StepSample)
    assert [sample.loss for sample in samples] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5], abs=1e-6)
    # Lines that stdio held back would arrive together.
    assert all(sample.t_end_s - sample.t_start_s > WAIT_S / 4 for sample in samples)


@pytest.mark.ranks
def test_steps_that_c_prints_are_heard_one_by_one(run: Run):
    result, repeat = run("preset=llmq", IN_C)
    assert_measured(result, repeat)
    log = (repeat / "log.0.txt").read_text()
    assert log.index("Creating trainer...") < log.index("[T] step     0") < log.index("[T] step     4")


@pytest.mark.ranks
def test_steps_that_a_child_process_prints_are_heard_one_by_one(run: Run):
    result, repeat = run(BY_LINE, child())
    assert_measured(result, repeat)


@pytest.mark.ranks
def test_steps_that_are_held_back_are_not_timed(run: Run):
    result, _ = run(BY_LINE, child("-E"))  # with -E, Python ignores PYTHONUNBUFFERED
    assert result.status is RunStatus.FAILED
    assert "arrived at once, so that no step can be timed: let the program flush" in result.reason


@pytest.mark.ranks
def test_what_was_printed_before_an_error_is_in_the_log(run: Run):
    failing = "import ctypes; ctypes.CDLL(None).printf(b'half a line'); raise ValueError('a mistake of mine')"
    result, repeat = run("preset=llmq", failing)
    assert "ValueError: a mistake of mine" in result.reason
    assert "half a line" in (repeat / "log.0.txt").read_text()
