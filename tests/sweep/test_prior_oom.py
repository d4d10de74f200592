from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.record.folder import find_runs

QUIET = ("tracking=none", "model=tiny", "hardware=cpu")
BATCHES = "batch.micro=1,2,4,8,16"


def endings(here: Path, method: str = "F") -> dict[int, str]:
    results = [run.result() for run in find_runs(here / "outputs")]
    return {
        result.batch.micro: f"{result.status} {result.reason}".strip() for result in results if result.method == method
    }


@pytest.fixture
def two_fits(runner):
    runner.largest_micro = 2
    return runner


def test_what_is_larger_than_what_ran_out_of_memory_is_skipped(llmexp, two_fits, here):
    code, _, _ = llmexp("method=F", BATCHES, *QUIET)
    assert code == 0
    assert two_fits.ran == [f"tiny F batch.micro={micro}" for micro in (1, 2, 4)]
    reason = "skipped already out of memory at batch.micro=4; force=true starts it anyway"
    assert endings(here) == {1: "success", 2: "success", 4: "oom", 8: reason, 16: reason}


def test_force_starts_it(llmexp, two_fits, here):
    llmexp("method=F", "batch.micro=4,8", "force=true", *QUIET)
    assert endings(here) == {4: "oom", 8: "oom"}


@pytest.mark.parametrize(
    "other", ["method=R", "data.seq_len=64", "precision=bf16_mixed", "batch.accumulation=2", "sweep.name=another"]
)
def test_a_run_that_differs_in_more_is_tried(llmexp, two_fits, here, other):
    llmexp("method=F", "batch.micro=4", *QUIET)
    method = () if other.startswith("method") else ("method=F",)
    llmexp(*method, other, "batch.micro=8", *QUIET)
    assert len(two_fits.ran) == 2


def test_an_ending_on_another_stack_says_nothing(llmexp, two_fits, monkeypatch):
    llmexp("method=F", "batch.micro=4", *QUIET)
    monkeypatch.setattr("llmexp.launch.stack.stack_digest", lambda plan: "another")
    llmexp("method=F", "batch.micro=8", *QUIET)
    assert len(two_fits.ran) == 2
