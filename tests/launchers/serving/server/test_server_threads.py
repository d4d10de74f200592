"""The threads of a server on a CPU: each of its processes takes its part of the cores."""

from __future__ import annotations

import pytest
from planning import make_plan

from llmexp.launchers.serving import worker
from llmexp.serving.plan.serving_plan import ServingPlan


def threads(*words: str) -> int:
    plan = make_plan("task=serve", "model=tiny", "hardware=cpu", "engine=vllm", *words)
    assert isinstance(plan, ServingPlan)
    return worker._threads(plan)


def test_processes_share_all_cores_but_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "usable_cores", lambda: 9)
    assert threads() == 8
    assert threads("parallelism.tp=2", "parallelism.dp=2") == 2
    assert threads("parallelism.dp=16") == 1
    assert threads("parallelism.dp=2", "measure.threads_per_rank=3") == 3
