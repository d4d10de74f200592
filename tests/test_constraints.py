"""The two sets of versions that llmexp is tested with, against the ranges that it takes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
# The extras that are tested with each set; a server is tested with the newer versions only.
SETS = {"constraints.txt": ("train", "torchft", "serve", "dev"), "constraints-older.txt": ("train", "dev")}


def direct(file: str = "constraints-older.txt") -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [Requirement(one) for one in project["dependencies"] + [one for name in SETS[file] for one in extras[name]]]


def pinned(file: str) -> dict[str, Version]:
    lines = (line.partition("==") for line in (ROOT / file).read_text().splitlines() if not line.startswith("#"))
    return {name: Version(version) for name, _, version in lines}


@pytest.mark.parametrize("file", SETS)
def test_each_set_pins_all_that_llmexp_asks_for_within_its_ranges(file: str) -> None:
    versions = pinned(file)
    assert [
        one.name for one in direct(file) if one.name not in versions or versions[one.name] not in one.specifier
    ] == []


def test_the_older_set_has_the_oldest_that_is_taken_of_what_llmexp_runs_on() -> None:
    older, newer = pinned("constraints-older.txt"), pinned("constraints.txt")
    oldest = {one.name: Version(spec.version) for one in direct() for spec in one.specifier if spec.operator == ">="}
    tools = ("mypy", "proselint", "types-psutil", "pytest", "pytest-xdist", "ruff", "torch", "ninja")
    # torchao has one release that trains in fp8 with the torch of both sets.
    run_on = [one.name for one in direct() if one.name not in (*tools, "torchao")]
    assert [name for name in run_on if older[name] != oldest[name]] == []
    assert [name for name in run_on if older[name] >= newer[name]] == []
