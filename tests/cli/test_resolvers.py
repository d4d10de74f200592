from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.cli.arguments import run_parser
from llmexp.cli.resolvers import server_python
from llmexp.cli.words import jobs_of
from llmexp.record.plan import RunPlan

WORDS = ["task=serve", "engine=vllm", "hardware=cpu", "model=tiny"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data home without any server, and no variable that names one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("LLMEXP_VLLM_PYTHON", raising=False)
    return tmp_path / "data"


@pytest.fixture
def made(data: Path) -> Path:
    """The interpreter that `make serve-venv` leaves."""
    python = data / "llmexp" / "servers" / "vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return python


def planned(*words: str) -> RunPlan:
    (job,) = jobs_of(run_parser().parse_intermixed_args([*WORDS, *words]))
    return job.plan


def test_a_server_without_an_environment_is_started_by_the_ranks_interpreter(data: Path) -> None:
    assert server_python("vllm") is None


def test_the_environment_in_the_data_home_is_found(made: Path) -> None:
    assert server_python("vllm") == str(made)
    assert server_python("sglang") is None


def test_without_a_data_home_it_is_in_the_users_own(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "home" / ".local" / "share" / "llmexp" / "servers" / "vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert server_python("vllm") == str(python)


def test_a_variable_comes_before_the_data_home(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMEXP_VLLM_PYTHON", "/mine/bin/python")
    assert server_python("vllm") == "/mine/bin/python"


def test_a_run_is_the_same_wherever_its_server_is_installed(made: Path) -> None:
    found, named, none = planned(), planned('engine.python="~/mine/bin/python"'), planned("engine.python=null")
    assert [plan.config.engine.python for plan in (found, named, none)] == [
        str(made),
        str(Path.home() / "mine/bin/python"),
        None,
    ]
    assert [plan.server.python for plan in (found, named, none)] == [
        plan.config.engine.python for plan in (found, named, none)
    ]
    assert len({plan.id for plan in (found, named, none)}) == 1
    assert planned("seed=1").id != found.id
