"""Copy llmexp's own sources into one folder, as a wheel would install them.

Ranks in another environment and queued jobs run this copy.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# In a checkout these packages lie outside their parent packages.
PACKAGES = (
    "llmexp",
    "llmexp.launchers",
    "llmexp.conf",
    *(f"hydra_plugins.llmexp_{name}" for name in ("sweeper", "local", "slurm")),
)
KINDS = (".py", ".yaml", ".csv", ".txt", ".md", ".typed")


def cache_folder() -> Path:
    """Return the folder for things that llmexp makes once for a machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmexp"


@cache
def snapshot(root: Path | None = None, others: tuple[str, ...] = ()) -> Path:
    """Return the folder to put on PYTHONPATH; its name is a digest of its content, so it never changes once it exists.

    It lies in `root` (None: this machine's cache). It also holds the sources of the modules in `others` that are not
    installed but lie where they are edited.
    """
    sources = sorted({**dict(_sources()), **dict(_edited(others))}.items())
    digest = hashlib.sha256()
    for target, source in sources:
        digest.update(f"{target}\0".encode() + source.read_bytes() + b"\0")
    folder = (root or cache_folder() / "code") / digest.hexdigest()[:12]
    if not folder.exists():
        _write(folder, sources)
    return folder


def _edited(modules: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield target and source of the files of modules that are not in site-packages."""
    installed = [sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")]
    for module in modules:
        spec = find_spec(module)
        places = map(Path, (spec.submodule_search_locations or filter(None, [spec.origin])) if spec else ())
        for place in places:
            if not any(place.is_relative_to(folder) for folder in installed):
                yield from _files(place)


def _files(place: Path) -> Iterator[tuple[str, Path]]:
    """Yield a module's file, or all files of a package's folder, with their names on PYTHONPATH."""
    found = [path for path in place.rglob("*") if "__pycache__" not in path.parts] if place.is_dir() else [place]
    yield from ((path.relative_to(place.parent).as_posix(), path) for path in found if path.is_file())


def _write(folder: Path, sources: list[tuple[str, Path]]) -> None:
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}")
    for target, source in sources:
        copy = scratch / target
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    try:
        scratch.rename(folder)
    except OSError:  # another driver was faster; an existing folder is complete
        shutil.rmtree(scratch)


def _sources() -> Iterator[tuple[str, Path]]:
    """Yield target and source of each file."""
    for package in PACKAGES:
        spec = find_spec(package)
        for root in map(Path, (spec.submodule_search_locations if spec else None) or ()):
            files = (path for path in root.rglob("*") if path.suffix in KINDS)
            yield from ((f"{package.replace('.', '/')}/{path.relative_to(root).as_posix()}", path) for path in files)
