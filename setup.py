"""Finds every package.

conf/ and launchers/ lie beside llmexp/ and are imported from within it; no finder in pyproject.toml supports this.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).parent


def packages() -> Iterator[str]:
    """Yield each folder of pyproject's package-dir and all below it, by import name.

    hydra_plugins itself is left out, because other projects' plugins lie there too.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for name, folder in project["tool"]["setuptools"]["package-dir"].items():
        if name != "hydra_plugins":
            yield name
        yield from (
            f"{name}.{below}" for below in find_namespace_packages(str(ROOT / folder), exclude=["*__pycache__*"])
        )


if __name__ == "__main__":
    setup(packages=list(packages()))
