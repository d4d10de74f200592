"""A copy of llmexp's own sources in one folder, as a wheel would install them: what ranks in another environment run, and queued jobs later."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# In a checkout these lie beside the package that they belong to.
PACKAGES = ("llmexp", "llmexp.launchers", "llmexp.conf", "hydra_plugins.llmexp_sweeper")
KINDS = (".py", ".yaml", ".csv", ".txt", ".md", ".typed")


def cache_folder() -> Path:
    """Where llmexp keeps what it makes once for a machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmexp"


@cache
def snapshot() -> Path:
    """The folder to put on PYTHONPATH; named by its content, so that it never changes once it is there."""
    sources = sorted(_sources())
    digest = hashlib.sha256()
    for target, source in sources:
        digest.update(f"{target}\0".encode() + source.read_bytes() + b"\0")
    folder = cache_folder() / "code" / digest.hexdigest()[:12]
    if not folder.exists():
        _write(folder, sources)
    return folder


def _write(folder: Path, sources: list[tuple[str, Path]]) -> None:
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}")
    for target, source in sources:
        copy = scratch / target
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    try:
        scratch.rename(folder)
    except OSError:  # another driver was faster; a folder that is there is complete
        shutil.rmtree(scratch)


def _sources() -> Iterator[tuple[str, Path]]:
    """Where each file goes, and where it is."""
    for package in PACKAGES:
        spec = find_spec(package)
        for root in map(Path, (spec.submodule_search_locations if spec else None) or ()):
            files = (path for path in root.rglob("*") if path.suffix in KINDS)
            yield from ((f"{package.replace('.', '/')}/{path.relative_to(root).as_posix()}", path) for path in files)
