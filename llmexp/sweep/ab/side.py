"""One side of `llmexp ab`: a commit, an environment, a checkout as it is, or a configuration, and how it is asked."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from llmexp.errors import ConfigError
from llmexp.record.git import changes, git

_VERSIONS = (
    "import importlib.metadata as m; print(sorted({(str(d.metadata['Name']), d.version) for d in m.distributions()}))"
)


@dataclass(frozen=True)
class Side:
    """What a side runs with: its Python, its variables, the folder that it starts in, and overrides of its own."""

    name: str
    python: str
    source: str = ""
    """What its code is: a commit, or a checkout with its changes; it tells one state of it from another."""
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command line that asks this side's llmexp."""
        return [self.python, "-m", "llmexp", *words]

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its processes; none imports from the folder that it starts in, which may be a checkout."""
        return os.environ | {"PYTHONSAFEPATH": "1"} | dict(self.variables)

    @property
    def identity(self) -> str:
        """A digest of what it measures with: code, versions and overrides."""
        asked = subprocess.run(
            [self.python, "-c", _VERSIONS], env=self.environment, capture_output=True, stdin=subprocess.DEVNULL
        )
        parts = (self.python, self.source, *self.words, asked.stdout.decode(errors="replace"))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def check(self, words: Sequence[str]) -> None:
        """Let the side plan the words; raises ConfigError, with its own error, where it cannot run them."""
        asked = subprocess.run(
            self.command(["plan", *words, *self.words]),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
        if asked.returncode:
            said = (asked.stderr.strip() or asked.stdout.strip() or f"exit code {asked.returncode}").splitlines()[-1]
            raise ConfigError(f"{self.name} cannot run this: {said.removeprefix('llmexp: ')}")


@contextmanager
def opened(text: str, place: Path) -> Iterator[Side]:
    """Yield the side that a person names; a commit is checked out at `place` for the length of the block.

    Raises ConfigError for what is none.
    """
    path = Path(text)
    if python := _python_of(path):
        yield Side(text, str(python))
    elif "=" in text:
        yield Side(text, sys.executable, words=tuple(shlex.split(text)))
    elif path.is_dir():
        if git(path, "rev-parse", "HEAD") is None:
            raise ConfigError(f"{text} is neither an environment (it has no bin/python) nor a git checkout")
        yield _with_code_of(text, path.resolve(), place, f"{git(path, 'rev-parse', 'HEAD')}{changes(path)}")
    else:
        repository, commit = _commit(text)
        with _checked_out(repository, commit, place / "checkout") as checkout:
            inside = Path.cwd().resolve().relative_to(repository)
            side = _with_code_of(text, checkout, place, commit)
            yield Side(text, side.python, commit, (), side.variables, side.folder and checkout / inside)


def _python_of(path: Path) -> Path | None:
    """Return the Python of an environment's folder, or the path itself where it is one; no link is followed."""
    for python in (path / "bin" / "python", path):
        if python.is_file() and os.access(python, os.X_OK) and python.name.startswith("python"):
            return python.absolute()
    return None


def _commit(text: str) -> tuple[Path, str]:
    """Return the repository that the working directory is in, and the commit's full name in it."""
    top = git(Path.cwd(), "rev-parse", "--show-toplevel")
    kinds = "a side is a commit, a folder with a checkout, an environment or its python, or overrides like engine=torch"
    if top is None:
        raise ConfigError(
            f"{text} does not exist, and this folder is in no git repository that could have it as a commit: {kinds}"
        )
    commit = git(Path(top.strip()), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    if not commit:
        raise ConfigError(
            f"unknown side '{text}': {top.strip()} has no such commit, and there is no such path: {kinds}"
        )
    return Path(top.strip()).resolve(), commit.strip()


@contextmanager
def _checked_out(repository: Path, commit: str, place: Path) -> Iterator[Path]:
    """Check a commit out beside the working tree for the length of the block; raises ConfigError."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        added = _git(repository, "add", "--quiet", "--detach", str(place), commit)
        if added.returncode:
            raise ConfigError(f"git cannot check out {commit}: {added.stderr.strip().splitlines()[-1]}")
        yield place
    finally:
        if place.exists():
            # Twice, because git locks a working tree until it is whole.
            _git(repository, "remove", "--force", "--force", str(place))


def _git(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # In a group of its own, so that Ctrl-C does not stop it halfway.
    return subprocess.run(
        ["git", "-C", str(repository), "worktree", *words], capture_output=True, text=True, process_group=0
    )


def _with_code_of(text: str, checkout: Path, place: Path, source: str) -> Side:
    """Return a side whose processes import from a checkout: llmexp itself, or another project that starts there."""
    if (checkout / "llmexp" / "__main__.py").is_file() and (checkout / "launchers").is_dir():
        return Side(text, sys.executable, source, variables=_searched_first(importable(checkout, place / "packages")))
    found = [str(folder) for folder in (checkout / "src", checkout) if folder.is_dir()]
    return Side(text, sys.executable, source, variables=_searched_first(*found), folder=checkout)


def _searched_first(*folders: Path | str) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])}


def importable(checkout: Path, place: Path) -> Path:
    """Lay a checkout of llmexp out as it is imported, and return the folder that PYTHONPATH has to name."""
    package = place / "llmexp"
    package.mkdir(parents=True)
    parts = [*(checkout / "llmexp").iterdir(), checkout / "conf", checkout / "launchers"]
    for part in parts:
        if part.name != "__pycache__":
            (package / part.name).symlink_to(part)
    (place / "hydra_plugins").symlink_to(checkout / "hydra_plugins")
    return place
