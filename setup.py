"""Every package, found: conf/ and launchers/ lie beside llmexp/ and are imported from within it, for which pyproject.toml knows no finder."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).parent


def packages() -> Iterator[str]:
    """Each folder of pyproject's package-dir, and all below it, by the names that they are imported by; but hydra_plugins, where others lie too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for name, folder in project["tool"]["setuptools"]["package-dir"].items():
        if name != "hydra_plugins":
            yield name
        yield from (
            f"{name}.{below}" for below in find_namespace_packages(str(ROOT / folder), exclude=["*__pycache__*"])
        )


if __name__ == "__main__":
    setup(packages=list(packages()))
