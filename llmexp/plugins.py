"""Other installed packages add atoms, engines, tasks, families, dtypes, metrics, references, trackers and files.

An entry point names each. A package is imported only when what it adds is asked for, except the (empty) package of its
files.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from llmexp.errors import ConfigError

ATOMS = "llmexp.atoms"
ENGINES = "llmexp.engines"
TASKS = "llmexp.tasks"
FAMILIES = "llmexp.families"
DTYPES = "llmexp.dtypes"
REFERENCES = "llmexp.references"
TRACKERS = "llmexp.trackers"
METRICS = "llmexp.metrics"
CONF = "llmexp.conf"


class KnownFile(NamedTuple):
    """A YAML file: its name by group and option, such as model/tiny.yaml, and its path."""

    name: str
    path: Path


@cache
def points(group: str, taken: Container[str] = ()) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, sorted by name.

    Raise ConfigError where a name, in any case, is in `taken` (lower case) or comes twice.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, distribution(point))):
        if point.name.lower() in taken or point.name.lower() in map(str.lower, found):
            raise ConfigError(
                f"{origin(point)}: the name {point.name} is taken: choose another, or uninstall {distribution(point)}"
            )
        found[point.name] = point
    return found


def load(point: EntryPoint, kind: type[Any]) -> Any:
    """Import what an entry point names; raise ConfigError, which names the package, for whatever goes wrong there."""
    try:
        found = point.load()
    except Exception as error:  # somebody else's code can raise anything
        raise ConfigError(
            f"{origin(point)} cannot be loaded ({type(error).__name__}: {error}); fix or uninstall it"
        ) from error
    if not isinstance(found, kind):
        raise ConfigError(f"{origin(point)} is a {type(found).__name__}, not a {kind.__name__}")
    return found


@cache
def conf_packages() -> tuple[str, ...]:
    """Return the packages that have YAML files; raise ConfigError where two packages, llmexp included, share a file."""
    packages = {point: _package(point) for point in points(CONF).values()}
    owners = dict.fromkeys(_files(import_module(CONF)), "llmexp") if packages else {}
    for point, package in packages.items():
        for file in _files(package):
            if file in owners:
                raise ConfigError(f"{origin(point)} has {file}, which {owners[file]} has too; give it another name")
            owners[file] = distribution(point)
    return tuple(package.__name__ for package in packages.values())


def known_files() -> Iterator[KnownFile]:
    """Yield the files of all groups: first llmexp's own, then those of other packages."""
    for package in map(import_module, (CONF, *conf_packages())):
        for name in _files(package):
            yield KnownFile(name, next(place for root in package.__path__ if (place := Path(root) / name).is_file()))


def files_of(package: str) -> list[str]:
    """Return the names of an importable package's YAML files, by group and option, sorted."""
    return sorted(_files(import_module(package)))


def distribution(point: EntryPoint) -> str:
    """Return the name by which pip knows the package of an entry point."""
    return point.dist.name if point.dist else point.module


def origin(point: EntryPoint) -> str:
    """Return the words by which an entry point and its package are found."""
    return f"package {distribution(point)}: {point.group} {point.name} = {point.value}"


def _package(point: EntryPoint) -> ModuleType:
    found: ModuleType = load(point, ModuleType)
    if not hasattr(found, "__path__"):
        raise ConfigError(f"{origin(point)} is a module, not a package of YAML files")
    return found


def _files(package: ModuleType) -> list[str]:
    return [file.relative_to(root).as_posix() for root in map(Path, package.__path__) for file in root.rglob("*.yaml")]
