from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher

import hydra_plugins
from llmexp.__main__ import main

LAUNCHED: list[list[str]] = []


class NotingLauncher(Launcher):
    """Starts nothing and notes what it was given, as a launcher to another machine would."""

    def setup(self, *, hydra_context, task_function, config) -> None:
        pass

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        LAUNCHED.extend(list(job) for job in job_overrides)
        return [JobReturn(status=JobStatus.COMPLETED) for _ in job_overrides]


NotingLauncher.__module__ = "hydra_plugins.noting"  # Hydra takes launchers only from there


@pytest.fixture(autouse=True)
def _noting_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType(NotingLauncher.__module__)
    module.NotingLauncher = NotingLauncher
    monkeypatch.setitem(sys.modules, NotingLauncher.__module__, module)
    monkeypatch.setattr(hydra_plugins, "noting", module, raising=False)
    Plugins.instance().register(NotingLauncher)
    LAUNCHED.clear()


def sweep(folder: Path, cells: str, *words: str) -> list[list[str]]:
    experiment = folder / "mine" / "experiment"
    experiment.mkdir(parents=True)
    launcher = "  launcher: {_target_: hydra_plugins.noting.NotingLauncher}\n"
    (experiment / "e.yaml").write_text(f"# @package _global_\nhydra:\n{launcher}  sweeper: {{cells: {cells}}}\n")
    main(["experiment=e", "--config-dir", "mine", "tracking=none", "hardware=cpu", *words])
    return [[word for word in job if word.startswith(("method", "model", "++"))] for job in LAUNCHED]


def test_cells_are_a_union_of_products(tmp_path: Path):
    jobs = sweep(tmp_path, "[{model: tiny, method: [F, R]}, {method: 'Z2,Z3', batch.micro: 2}]")
    assert jobs == [
        ["model=tiny", "method=F"],
        ["model=tiny", "method=R"],
        ["method=Z2", "++batch.micro=2"],
        ["method=Z3", "++batch.micro=2"],
    ]


def test_sweeps_of_the_command_line_multiply_the_cells(tmp_path: Path):
    jobs = sweep(tmp_path, "[{method: [F, R]}]", "batch.micro=1,2")
    assert jobs == [
        ["++batch.micro=1", "method=F"],
        ["++batch.micro=1", "method=R"],
        ["++batch.micro=2", "method=F"],
        ["++batch.micro=2", "method=R"],
    ]


def test_a_key_on_the_command_line_leaves_the_cells(tmp_path: Path):
    jobs = sweep(tmp_path, "[{model: 7b, method: F}, {model: 13b, method: [F, R]}]", "model=tiny")
    assert jobs == [["model=tiny", "method=F"], ["model=tiny", "method=R"]]


def test_a_value_that_cells_hold_selects_them(tmp_path: Path):
    cells = "[{model: 7b, method: [F, R+Z2]}, {model: 13b, method: R}, {method: Q}]"
    assert sweep(tmp_path, cells, "model=7b") == [
        ["model=7b", "method=F"],
        ["model=7b", "method=R+Z2"],
        ["model=7b", "method=Q"],
    ]


def test_a_method_that_cells_hold_selects_them_in_any_spelling(tmp_path: Path):
    cells = "[{model: 7b, method: [F, R+Z2]}, {model: 13b, method: R}]"
    assert sweep(tmp_path, cells, "method=Z2+R,R") == [["method=Z2+R", "model=7b"], ["method=R", "model=13b"]]


def test_a_wrong_cell_ends_all_before_the_first_starts(tmp_path: Path, capsys):
    assert sweep(tmp_path, "[{method: F}, {method: O}]") == []
    assert "run method=O: " in capsys.readouterr().err


def test_a_misspelt_key_of_a_cell_is_named(tmp_path: Path, capsys):
    assert sweep(tmp_path, "[{methd: F}]") == []
    assert "did you mean method?" in capsys.readouterr().err
