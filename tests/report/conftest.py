from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from llmexp.plan.training_plan import TrainingPlan
from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric, RunResult, Stability
from llmexp.report.picture import new_figure

MakeRun = Callable[..., RunFolder]


@pytest.fixture
def make_run(tmp_path: Path, tiny_plan: Callable[..., TrainingPlan], result_of: Callable[..., RunResult]) -> MakeRun:
    """Write a run's folder with a real plan, and a result with `metrics` (numbers or Metric) where `status` is given."""

    def make(
        method: str = "Naive",
        status: str | None = "success",
        metrics: dict[str, Any] | None = None,
        reason: str = "",
        stability: Stability | None = None,
        **changes: Any,
    ) -> RunFolder:
        plan = tiny_plan(method, **changes)
        folder = RunFolder(tmp_path / plan.config.sweep.name / plan.folder_name)
        folder.write(folder.plan_path, plan)
        if status:
            values = {name: value if isinstance(value, Metric) else Metric(mean=value) for name, value in (metrics or {}).items()}
            folder.write(folder.result_path, result_of(plan, status, reason=reason, metrics=values, stability=stability))
        return folder

    return make


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """All figures that are drawn, to look at what they hold."""
    made: list[Figure] = []

    def keep(*arguments: Any) -> Figure:
        made.append(new_figure(*arguments))
        return made[-1]

    for module in ("plots", "run_plots", "loss_plot", "scaling_plot"):
        monkeypatch.setattr(f"llmexp.report.{module}.new_figure", keep)
    return made
