"""Ranks in another interpreter, behind set-up lines and in a container.

They are real processes, whose own account says where they ran.
"""

from __future__ import annotations

import json
import signal
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from patience import until
from pydantic import TypeAdapter

from chaos.container_daemon import IMAGE
from chaos.containers import Containers
from chaos.surroundings import Surroundings
from llmexp.launch.command_prefix import interpreter
from llmexp.launch.run import run_one
from llmexp.launch.stack import stack_digest
from llmexp.machine.processor import usable_cores
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus
from llmexp.schema import RuntimeConfig
from llmexp.training.plan.training_plan import TrainingPlan

SCRIPTS = Path(__file__).parent / "scripts"
# The cores shared out among the two ranks of a made-up plan.
THREADS = str(max(1, usable_cores() // 2))
# agent.py, and what it saw: where its Python and its llmexp lie, and a variable.
SEES = """
import json, os, runpy, sys
from pathlib import Path
import llmexp
seen = {"prefix": sys.prefix, "llmexp": llmexp.__file__, "greeting": os.environ.get("GREETING"),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "other": os.environ.get("NOT_TOLD")}
Path(sys.argv[1], "seen.json").write_text(json.dumps(seen))
sys.argv = [AGENT, *sys.argv[1:]]
runpy.run_path(AGENT, run_name="__main__")
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """An environment of its own that has this one's libraries, but no llmexp."""
    venv.create(tmp_path / "other", symlinks=True)
    (site,) = (tmp_path / "other").glob("lib/python*/site-packages")
    (site / "base.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return tmp_path / "other" / "bin" / "python"


@pytest.fixture
def make(make_plan: Callable[..., TrainingPlan]) -> Callable[..., TrainingPlan]:
    """A plan whose ranks say what they see; keywords are those of the runtime."""

    def plan(behavior: str = "well", **runtime: object) -> TrainingPlan:
        planned = make_plan()
        chosen = TypeAdapter(RuntimeConfig).validate_python({"name": "here"} | runtime)
        config = planned.config.model_copy(update={"runtime": chosen})
        argv = [interpreter(chosen), "-c", f"AGENT = {str(SCRIPTS / 'agent.py')!r}{SEES}", "{folder}", behavior]
        return planned.model_copy(
            update={"config": config, "command": planned.command.model_copy(update={"argv": argv})}
        )

    return plan


def seen(folder: RunFolder) -> dict[str, str]:
    return json.loads((folder.repeat(0) / "seen.json").read_text())


def test_another_interpreter_runs_this_llmexps_code(
    make: Callable[..., TrainingPlan], folder: RunFolder, other: Path, tmp_path: Path
) -> None:
    result = run_one(make(name="venv", python=str(other)), folder)
    assert result.status is RunStatus.SUCCESS, result.reason
    told = seen(folder)
    assert told["prefix"] == str(tmp_path / "other")
    assert Path(told["llmexp"]).is_relative_to(tmp_path / "cache" / "llmexp" / "code")
    assert told["threads"] == THREADS


def test_another_version_is_another_stack_and_is_in_the_result(
    make: Callable[..., TrainingPlan], folder: RunFolder, other: Path
) -> None:
    (site,) = other.parent.parent.glob("lib/python*/site-packages")
    information = site / "psutil-0.0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: psutil\nVersion: 0.0.1\n")
    result = run_one(make(name="venv", python=str(other)), folder)
    assert result.environment["distributions"]["psutil"] == "0.0.1"
    assert result.stack != stack_digest(make())


def test_setup_and_variables_reach_the_ranks(make: Callable[..., TrainingPlan], folder: RunFolder) -> None:
    result = run_one(
        make(name="site", setup=('export GREETING="$WHOM, good day"',), environment={"WHOM": "ranks"}), folder
    )
    assert result.status is RunStatus.SUCCESS, result.reason
    assert seen(folder)["greeting"] == "ranks, good day"


@pytest.mark.parametrize(
    ("runtime", "reason"),
    [
        (
            {"name": "venv", "python": "/no/such/python"},
            "runtime=venv does not start: [Errno 2] No such file or directory: '/no/such/python'",
        ),
        (
            {"name": "site", "setup": ("echo no license left >&2; false",)},
            "runtime=site does not start: no license left",
        ),
        (
            {"name": "docker", "container": "docker", "program": "no-such-docker", "image": "x"},
            "runtime=docker does not start: [Errno 2]",
        ),
    ],
)
def test_a_runtime_that_does_not_start_is_said_before_any_rank(
    make: Callable[..., TrainingPlan], folder: RunFolder, runtime: dict[str, object], reason: str
) -> None:
    result = run_one(make(**runtime), folder)
    assert result.status is RunStatus.FAILED
    assert result.reason.startswith(reason)
    assert folder.repeats() == []


def test_what_an_environment_lacks_is_named(make: Callable[..., TrainingPlan], folder: RunFolder, other: Path) -> None:
    (site,) = other.parent.parent.glob("lib/python*/site-packages")
    (site / "base.pth").unlink()
    reason = run_one(make(name="venv", python=str(other)), folder).reason
    assert reason.startswith(
        "engine=scripted with method=Naive, data=synthetic needs psutil, pydantic in runtime=venv: pip install"
    )


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A container program that keeps from its command what docker would; its calls are in $TALLY."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {SCRIPTS / "container.py"} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("TALLY", str(tmp_path / "tally"))
    monkeypatch.setenv("NOT_TOLD", "a secret of the shell")
    return {
        "name": "docker",
        "container": "docker",
        "program": str(program),
        "image": "an-image",
        "python": sys.executable,
    }


def test_a_container_gets_what_ranks_need_and_nothing_else_of_the_shell(
    make: Callable[..., TrainingPlan], folder: RunFolder, docker: dict[str, object], tmp_path: Path
) -> None:
    result = run_one(make(**docker, environment={"GREETING": "hello"}), folder)
    assert result.status is RunStatus.SUCCESS, result.reason
    told = seen(folder)
    assert (told["greeting"], told["threads"], told["other"]) == ("hello", THREADS, None)
    asked, cleared, ran, ended = (tmp_path / "tally").read_text().splitlines()
    assert "llmexp.record.installed" in asked
    assert cleared == ended
    assert f"--volume {folder.path}:{folder.path} " in ran
    assert ended == f"rm --force {ran.partition('--name ')[2].split()[0]}"


def test_a_container_is_ended_when_the_driver_is_killed(
    make: Callable[..., TrainingPlan],
    folder: RunFolder,
    docker: dict[str, object],
    tmp_path: Path,
    start_driver: Callable[[TrainingPlan], psutil.Popen],
    processes: Callable[[], list[psutil.Process]],
) -> None:
    driver = start_driver(make("hang", **docker))
    until(lambda: (folder.repeat(0) / "seen.json").exists())
    driver.send_signal(signal.SIGKILL)
    until(lambda: not processes())
    assert (tmp_path / "tally").read_text().splitlines()[-1].startswith("rm --force llmexp-")


def test_a_container_that_outlived_driver_and_supervisor_is_removed_at_the_next_start(
    make: Callable[..., TrainingPlan],
    folder: RunFolder,
    tmp_path: Path,
    start_driver: Callable[[TrainingPlan], psutil.Popen],
) -> None:
    with Containers(inside := Surroundings(tmp_path / "scratch", tmp_path / "outputs")) as containers:
        docker = {
            "name": "docker",
            "container": "docker",
            "program": str(containers.program),
            "image": IMAGE,
            "python": sys.executable,
        }
        driver = start_driver(make("slow", **docker))
        until(lambda: (folder.repeat(0) / "samples.0.jsonl").exists())
        (supervisor,) = (child for child in driver.children() if "llmexp.launch.supervisor" in child.cmdline())
        supervisor.suspend()
        driver.kill()
        driver.wait()
        supervisor.kill()
        assert folder.state() == "killed"
        (left,) = inside.processes()
        result = run_one(make(**docker), folder)
        assert result.status is RunStatus.SUCCESS, result.reason
        assert not left.is_running()
