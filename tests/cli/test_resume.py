from __future__ import annotations

import pytest

from llmexp.cli.resume import why_again
from llmexp.record.result import Batch, RunResult, RunStatus


class Config:
    def __init__(self, rerun: str, force: bool) -> None:
        self.rerun, self.force = rerun, force


def again(rerun: str, status: RunStatus, stack: str = "now", force: bool = False) -> str | None:
    fields = dict.fromkeys(("id", "task", "engine", "model", "method", "hardware", "sweep", "command"), "x")
    earlier = RunResult(**fields, stack="now", status=status, world_size=1, batch=Batch(micro=1, accumulation=1, global_=1), seq_len=2)
    return why_again(Config(rerun, force), earlier, stack)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", RunStatus)
def test_by_status(status):
    assert again("none", status) is None
    assert again("all", status) == "rerun=all"
    for rerun in ("failed", "stale"):
        assert bool(again(rerun, status)) is not status.is_answer


def test_another_stack_makes_a_result_stale():
    assert "changed" in str(again("stale", RunStatus.OOM, stack="later"))
    assert again("failed", RunStatus.OOM, stack="later") is None
    assert again("none", RunStatus.OOM, stack="later") is None


def test_force_starts_what_was_skipped_only():
    assert "force" in str(again("failed", RunStatus.SKIPPED, force=True))
    assert again("failed", RunStatus.SUCCESS, force=True) is None
