"""The packages that a Python has installed, and the tools beside it.

llmexp asks its own Python directly, and another one by `python -m llmexp.record.installed`. Every Python that is asked
must be able to answer, so this module needs only the standard library and runs on Pythons that llmexp does not support.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

# The answer's line begins with this mark, because set-up lines may print too.
MARK = "llmexp-installed "
OLDEST_PYTHON = (3, 11)
VERSION = re.compile(r"^Version:[ \t]*(\S+)", re.MULTILINE)
COMPILERS = ("c++", "g++", "clang++")
C_COMPILERS = ("gcc", "clang")


@dataclass(frozen=True)
class Installed:
    """A Python's version and build, its distributions' versions, the modules it lacks, and the paths of compilers.

    `error` says why the Python cannot be asked.
    """

    python: str = ""
    cache_tag: str = ""
    distributions: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    compiler: str | None = None
    c_compiler: str | None = None
    python_header: str | None = None
    ninja: str | None = None
    nvcc: str | None = None
    hipcc: str | None = None
    error: str = ""


def look(distributions: Iterable[str] = (), modules: Iterable[str] = ()) -> Installed:
    """Describe this Python, with the versions of `distributions` and the names of `modules` that are missing."""
    return Installed(
        python=".".join(map(str, sys.version_info[:3])),
        cache_tag=str(sys.implementation.cache_tag),
        distributions=versions(distributions),
        missing=tuple(name for name in modules if not _is_there(name)),
        compiler=os.environ.get("CXX") or _first(COMPILERS),
        c_compiler=os.environ.get("CC") or _first(C_COMPILERS),
        python_header=_python_header(),
        ninja=shutil.which("ninja", path=path_with_scripts()),
        nvcc=shutil.which("nvcc") or shutil.which("nvcc", path=f"{cuda_home()}/bin"),
        hipcc=shutil.which("hipcc") or shutil.which("hipcc", path=f"{rocm_home()}/bin"),
    )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package of the module is missing
        return False


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    return {name: version for name in distributions if (version := _version(name)) is not None}


def _version(name: str) -> str | None:
    """Read the version's line alone: importlib.metadata would parse the whole file, and with it the package's page."""
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    line = VERSION.search(found.read_text("METADATA") or found.read_text("PKG-INFO") or "")
    return line[1] if line else found.version


def _first(programs: Iterable[str]) -> str | None:
    return next((name for name in programs if shutil.which(name)), None)


def _python_header() -> str | None:
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    return header if os.path.exists(header) else None


def version_of(python: str) -> tuple[int, ...]:
    """Return the major and minor number of a version such as 3.11.7."""
    return tuple(int(part) for part in python.split(".")[:2])


def path_with_scripts() -> str:
    """Return PATH with this interpreter's folder first, so that its ninja is found in an environment not activated."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])


def cuda_home() -> str:
    """Return the CUDA toolkit's folder, which is used where PATH does not lead to the toolkit."""
    return os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"


def rocm_home() -> str:
    """Return ROCm's folder, which is used where PATH does not lead to it."""
    return os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm"


def installs(extras: str) -> str:
    """Return the command that installs llmexp with extras, from the checkout if this code is in one, else by wheel."""
    root = Path(__file__).parents[2]
    if (root / "pyproject.toml").is_file():
        return f"pip install '.[{extras}]' in {root}"
    return f"pip install 'llmexp[{extras}]' --find-links <the folder of llmexp's wheel>"


def question(distributions: Iterable[str], modules: Iterable[str]) -> list[str]:
    """Return the arguments for `python` on the command line that asks."""
    return ["-m", __name__, json.dumps([list(distributions), list(modules)])]


def answer(text: str) -> Installed | None:
    """Read the answer from what the other Python printed; None where it did not answer."""
    told = next((line for line in reversed(text.splitlines()) if line.startswith(MARK)), None)
    if told is None:
        return None
    found = json.loads(told[len(MARK) :])
    return Installed(**{**found, "missing": tuple(found["missing"])})


if __name__ == "__main__":
    print(MARK + json.dumps(asdict(look(*json.loads(sys.argv[1])))))
