"""locked/ against constraints.txt and what is installed, and make's recipes with LOCKED=1."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "locked").iterdir())
ENTRY = re.compile(r"([a-z0-9-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def locked(file: str) -> dict[str, str]:
    return {name: version for name, version, _ in ENTRY.findall((ROOT / "locked" / file).read_text())}


def pinned() -> dict[str, str]:
    lines = (
        line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
    )
    return {name: version for name, _, version in lines}


def asked_for() -> set[str]:
    """All that llmexp and its extras require on this machine, as the installed distributions say."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    left = set(
        map(
            Requirement,
            project["dependencies"]
            + [one for extra in ("train", "megatron", "torchft", "serve", "slurm", "dev") for one in extras[extra]],
        )
    )
    found: set[str] = set()
    while left:
        found |= {canonicalize_name(one.name) for one in left}
        further = {Requirement(text) for one in left for text in requires(one.name) or []}
        left = {
            one
            for one in further
            if canonicalize_name(one.name) not in found and (one.marker is None or one.marker.evaluate({"extra": ""}))
        }
    return found


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """Without what the make around these tests was told."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "LOCKED", "TORCH")
    }
    return subprocess.run(["make", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def recipe(*words: str) -> str:
    done = make("--dry-run", *words)
    return done.stdout + done.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_locked_file_holds_versions_with_hashes_and_nothing_else(file: Path) -> None:
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE)
    assert ENTRY.search(text)
    assert ENTRY.sub("", text) == ""


@pytest.mark.parametrize("torch", ["torch-cpu.txt", "torch-cuda.txt"])
def test_the_locked_versions_are_those_of_the_constraints(torch: str) -> None:
    versions = locked("libraries.txt") | {"torch": locked(torch)["torch"].removesuffix("+cpu")}
    assert versions == pinned()
    assert [
        name for name, version in locked(torch).items() if name != "torch" and versions.get(name, version) != version
    ] == []


def test_all_that_llmexp_and_its_extras_require_is_locked() -> None:
    assert asked_for() - {"torch"} <= set(locked("libraries.txt")) | set(locked("build.txt"))


@pytest.mark.parametrize("torch", ["cpu", "cuda"])
def test_locked_installs_by_hash_alone(tmp_path: Path, torch: str) -> None:
    goals = [f"{tmp_path}/venv/.installed-{extras}" for extras in ("train", "train,megatron,torchft,serve,slurm,dev")]
    text = recipe("LOCKED=1", f"VENV={tmp_path}/venv", f"TORCH={torch}", *goals)
    installs = re.findall(r"-m pip install .*", text)
    own = [one for one in installs if "--editable" in one]
    assert len(own) == 2
    assert all({"--no-deps", "--no-build-isolation"} <= set(one.split()) for one in installs)
    assert all("--require-hashes" in one.split() for one in installs if one not in own)
    assert {"build.txt", f"torch-{torch}.txt", "libraries.txt"} == set(
        re.findall(r"--requirement locked/(\S+)", "\n".join(installs))
    )


def test_an_environment_that_was_begun_locked_stays_so(tmp_path: Path) -> None:
    (tmp_path / ".locked").touch()
    assert "--require-hashes" in recipe(f"VENV={tmp_path}", f"{tmp_path}/.installed-train")
    assert "--require-hashes" not in recipe(f"VENV={tmp_path}/other", f"{tmp_path}/other/.installed-train")


def test_an_environment_that_was_begun_otherwise_is_refused(tmp_path: Path) -> None:
    done = make("LOCKED=1", f"VENV={tmp_path}", f"{tmp_path}/.python")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{tmp_path} was installed without LOCKED=1: ")


def test_what_has_no_hashes_is_refused() -> None:
    assert "there are no hashes for make wheelhouse" in recipe("LOCKED=1", "wheelhouse")
