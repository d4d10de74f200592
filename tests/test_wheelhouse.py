"""wheelhouse.txt against what the installed distributions say that they require."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
# What a node has or does without; wheelhouse.txt says why.
LEFT_OUT = {
    "torch",
    "jinja2",
    "mlflow",
    "matplotlib",
    "bitsandbytes",
    "datasets",
    "pytorch-optimizer",
    "torchao",
    "hf-xet",
    "gguf",
}


def names(requirements: Iterable[str]) -> set[str]:
    found = map(Requirement, requirements)
    return {
        canonicalize_name(one.name) for one in found if one.marker is None or one.marker.evaluate({"extra": ""})
    } - LEFT_OUT


def collected() -> set[str]:
    makefile = (ROOT / "Makefile").read_text()
    built = re.search(r"^PURE_SDISTS := (.+)$", makefile, re.MULTILINE)
    assert built
    lines = (ROOT / "wheelhouse.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")} | set(built[1].split())


def test_the_wheelhouse_holds_all_that_a_run_requires_and_nothing_that_is_left_out() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {"nvidia-ml-py"}
    extras = project["optional-dependencies"]
    left = names(project["dependencies"] + extras["train"] + extras["serve"])
    while left:
        wanted |= left
        left = set().union(*(names(requires(one) or []) for one in left)) - wanted
    assert collected() == wanted


def test_every_version_is_pinned() -> None:
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert collected() <= pinned
