"""plan.json of earlier versions, read as one of today."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.errors import RecordError
from llmexp.record.plan import PLAN_SCHEMA_VERSION, RunPlan
from llmexp.record.result import to_json
from llmexp.training.plan.training_plan import TrainingPlan


@pytest.fixture
def of_version_1(tiny_plan: Callable[..., TrainingPlan], tmp_path: Path) -> Callable[[str], Path]:
    """Write a plan as version 1 had it, with the whole shell line."""

    def write(line: str) -> Path:
        plan = json.loads(to_json(tiny_plan("F")))
        del plan["overrides"], plan["rerun_command"]
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan | {"schema": 1, "rerun_command": line}))
        return path

    return write


def test_a_shell_line_of_version_1_becomes_overrides(of_version_1):
    line = "python -m llmexp method=F 'serve.rate=[1, 2]' model.path='a b'"
    plan = RunPlan.read(of_version_1(line))
    assert plan.overrides == ["method=F", "serve.rate=[1, 2]", "model.path=a b"]
    assert plan.rerun_command == "python -m llmexp method=F 'serve.rate=[1, 2]' 'model.path=a b'"
    assert json.loads(to_json(plan))["schema"] == PLAN_SCHEMA_VERSION


def test_a_skip_of_version_2_which_was_its_reason_alone_gets_a_code(tiny_plan, tmp_path: Path):
    written = json.loads(to_json(tiny_plan("F"))) | {"schema": 2, "skip": "not with this engine"}
    (tmp_path / "plan.json").write_text(json.dumps(written))
    plan = RunPlan.read(tmp_path / "plan.json")
    assert (plan.skip.code, plan.skip.reason) == ("unsupported", "not with this engine")
    assert json.loads(to_json(plan))["schema"] == PLAN_SCHEMA_VERSION


def test_a_line_that_no_shell_reads_is_said(of_version_1):
    with pytest.raises(RecordError, match="No closing quotation"):
        RunPlan.read(of_version_1("python -m llmexp 'method=F"))
