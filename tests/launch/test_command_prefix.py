from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from llmexp.launch.command_prefix import Needs, ending, interpreter, wrap
from llmexp.schema import ContainerRuntime, HereRuntime, InterpreterRuntime

SAY = ["sh", "-c", 'echo "$0:$1:$GREETING"', "a word", "another one"]
NEEDS = Needs(writes=("/runs",), reads=("/code",), variables=("OMP_NUM_THREADS",), gpus=True, name="llmexp-1")


def output(argv: list[str], **env: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin", **env}).stdout


def test_nothing_stands_before_the_command_of_ones_own_interpreter() -> None:
    here = HereRuntime(name="here")
    assert here.plain
    assert (wrap(SAY, here, NEEDS), interpreter(here), ending(here, "x")) == (SAY, sys.executable, [])


def test_setup_lines_run_before_the_command_and_leave_its_words_alone() -> None:
    assert (
        output(wrap(SAY, InterpreterRuntime(name="site", setup=("export GREETING='good day'", ": ")), NEEDS))
        == "a word:another one:good day\n"
    )


def test_a_line_that_fails_ends_it() -> None:
    done = subprocess.run(
        wrap(SAY, InterpreterRuntime(name="site", setup=("false", "export GREETING=x")), NEEDS),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("variable", ["LMOD_PKG", "MODULESHOME"])
def test_modules_are_loaded_by_the_sites_own_command(tmp_path: Path, variable: str) -> None:
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "bash").write_text('module() { export GREETING="$*"; }\n')
    loads = InterpreterRuntime(name="site", modules=("gcc/13", "cuda/12.4"))
    assert output(wrap(SAY, loads, NEEDS), **{variable: str(tmp_path)}) == "a word:another one:load gcc/13 cuda/12.4\n"


def test_without_a_module_command_it_says_so() -> None:
    done = subprocess.run(
        wrap(SAY, InterpreterRuntime(name="site", modules=("gcc",)), NEEDS),
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.returncode != 0
    assert done.stderr.strip().endswith("no module command here")


def test_apptainer_binds_folders_shows_gpus_and_sets_up_inside() -> None:
    held = ContainerRuntime(
        name="apptainer",
        container="apptainer",
        image="a.sif",
        python="python3",
        options=("--cleanenv",),
        setup=("true",),
    )
    words = wrap(["python3", "-m", "x"], held, NEEDS)
    assert words[:10] == [
        "apptainer",
        "exec",
        "--nv",
        "--bind",
        "/runs",
        "--bind",
        "/code:/code:ro",
        "--cleanenv",
        "a.sif",
        "bash",
    ]
    assert words[-3:] == ["python3", "-m", "x"]
    assert ending(held, "llmexp-1") == []


def test_modules_come_before_the_container_that_they_bring() -> None:
    held = ContainerRuntime(
        name="apptainer", container="apptainer", program="singularity", image="a.sif", modules=("singularity",)
    )
    words = wrap(["python3"], held, NEEDS)
    assert (words[0], words.index("singularity")) == ("bash", 4)


def test_docker_runs_as_the_user_in_the_hosts_namespaces_and_is_ended_by_name() -> None:
    held = ContainerRuntime(name="docker", container="docker", program="podman", image="torch:2")
    words = wrap(["python3"], held, NEEDS)
    assert words[:5] == ["podman", "run", "--rm", "--name", "llmexp-1"]
    pairs = list(pairwise(words))
    for pair in (
        ("--pid", "host"),
        ("--gpus", "all"),
        ("--volume", "/runs:/runs"),
        ("--volume", "/code:/code:ro"),
        ("--env", "OMP_NUM_THREADS"),
    ):
        assert pair in pairs
    assert words[-2:] == ["torch:2", "python3"]
    assert ending(held, "llmexp-1") == ["podman", "rm", "--force", "llmexp-1"]
