"""The sources that decide what a rank does: the modules of llmexp that its worker can import, and no others."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from llmexp.registry import FAMILIES

# The packages of llmexp, which setup.py maps to folders of their own.
_ROOTS = ("llmexp", "llmexp.launchers")
# What a worker may be. The launchers of ranks, which a command names too, are the driver's side.
_WORKERS = "llmexp.launchers."
# Without a known worker, all that may run inside ranks counts.
_OF_RANKS = (_WORKERS, "llmexp.measure.")
# The fork server imports the first module by a name that it is given, so no import statement shows it.
_FORKED, _FORKER = "llmexp.launchers.rank.forked", "llmexp.launch.fork_server"
# Families of microbenchmarks are imported by the names that the registry has, and they name what their ranks call.
_FAMILIES = {place.partition(":")[0] for place in FAMILIES.values()}
_ASKS_FOR_FAMILIES = {"llmexp.registry.families", "llmexp.registry.get_family"}
_NAMED = re.compile(r"\"(llmexp(?:\.\w+)+):\w+\"")
# An import anywhere in the file, also one in brackets over several lines.
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n#]+)|import\s+([\w.]+))", re.MULTILINE)
# A type checker alone imports these.
_FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+", re.MULTILINE)


class MissingSourceError(Exception):
    """The error for a module that a worker's sources import and that is not there: a digest without it would lie."""


@cache
def worker_sources(words: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the sources for a command's words, sorted by module; those of all ranks where no word is a worker.

    Raises MissingSourceError.
    """
    known = _modules()
    workers = [word for word in words if word in known and word.startswith(_WORKERS)] or list(_others_worker(words))
    if not workers:
        workers = [name for name in known if name.startswith(_OF_RANKS)]
    reached = _reached([*workers, *[_FORKED] * (_FORKER in words)], known)
    return tuple(known[name] for name in known if name in reached)


def _modules() -> dict[str, Path]:
    """Return all modules of llmexp by their names, in the names' order."""
    found: dict[str, Path] = {}
    for package in _ROOTS:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise MissingSourceError(f"package {package} has no sources")
        root = Path(spec.origin).parent
        for path in root.rglob("*.py"):
            parts = (package, *path.relative_to(root).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return dict(sorted(found.items()))


def _others_worker(words: Sequence[str]) -> Iterator[str]:
    """Yield the module of another package, given before the repeat's folder, that imports modules of llmexp."""
    for word, after in pairwise(words):
        if after == "{folder}" and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", word) and _source(word):
            yield word


def _reached(workers: Sequence[str], known: dict[str, Path]) -> set[str]:
    """Return the modules that these workers import, directly or not, with the packages above them."""
    own = {worker.partition(".")[0] for worker in workers} | {"llmexp"}
    reached: set[str] = set()
    waiting = list(workers)
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        path = known.get(name) or _source(name)
        if path is None:
            raise MissingSourceError(f"module {name} is imported in {', '.join(workers)}, and has no source")
        source = path.read_text()
        imported = [each for each in _imported(source) if each.partition(".")[0] in own]
        imported += _FAMILIES if _ASKS_FOR_FAMILIES & set(imported) else ()
        imported += _NAMED.findall(source) if name in _FAMILIES else ()
        waiting += [each for each in imported if each in known or _source(each)]
        lost = next((each for each in imported if not _is_there(each, known)), None)
        if lost:
            raise MissingSourceError(f"{path} imports {lost}, which has no source")
        waiting += [above for above in _above(name) if above in known]
    return reached


def _is_there(name: str, known: dict[str, Path]) -> bool:
    """Tell whether a module exists, or the one above it, of which the name may be a function."""
    return any(each in known or _source(each) for each in (name, name.rpartition(".")[0]) if each)


def _imported(source: str) -> Iterator[str]:
    """Yield the dotted names that a source imports when it runs; `from a import b` gives a and a.b."""
    for module, names, plain in _IMPORT.findall(_FOR_TYPES.sub("", source)):
        yield plain or module
        yield from (f"{module}.{name}" for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", names.strip("()")) if module)


def _above(name: str) -> Iterable[str]:
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts)))


@cache
def _source(module: str) -> Path | None:
    """Find a module's file without importing the packages that it lies in."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    for root in map(Path, (spec.submodule_search_locations if spec else None) or ()):
        place = root.joinpath(*inner)
        found = next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
        if found:
            return found
    return None
