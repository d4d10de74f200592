"""The sources that decide what a rank does: the modules of ROOMS that its worker can import."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOMS = ("llmexp.launchers", "llmexp.measure", "llmexp.record.samples")
# The fork server imports the first module by a name that it is given, so no import statement shows it.
_FORKED, _FORKER = "llmexp.launchers.rank.forked", "llmexp.launch.fork_server"
# An import anywhere in the file, also one in brackets over several lines.
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n#]+)|import\s+([\w.]+))", re.MULTILINE)


@cache
def worker_sources(words: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the sources for a command's words, sorted by module; all of ROOMS where no word is a worker's module."""
    known = _modules()
    workers = [word for word in words if word in known] or list(_others_worker(words))
    if not workers:
        return tuple(known.values())
    reached = _reached([*workers, *[_FORKED] * (_FORKER in words)], known)
    return tuple(known[name] for name in known if name in reached)


def _modules() -> dict[str, Path]:
    """Return all modules of ROOMS by their names."""
    found: dict[str, Path] = {}
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        if spec is None or spec.origin is None:
            continue
        root = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            inner = path.relative_to(root).with_suffix("").parts if root.is_dir() else ()
            found[".".join((room, *inner)).removesuffix(".__init__")] = path
    return dict(sorted(found.items()))


def _others_worker(words: Sequence[str]) -> Iterator[str]:
    """Yield the module of another package, given before the repeat's folder, that imports modules of llmexp."""
    for word, after in pairwise(words):
        if after == "{folder}" and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", word) and _source(word):
            yield word


def _reached(workers: Sequence[str], known: dict[str, Path]) -> set[str]:
    """Return the modules that these workers import, directly or not, with the packages above them."""
    own = {worker.partition(".")[0] for worker in workers} - {"llmexp"}
    reached: set[str] = set()
    waiting = list(workers)
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        path = known.get(name) or (_source(name) if name.partition(".")[0] in own else None)
        if path:
            waiting += [each for each in _imported(path.read_text()) if each in known or each.partition(".")[0] in own]
            waiting += [above for above in _above(name) if above in known]
    return reached


def _imported(source: str) -> Iterator[str]:
    """Yield the dotted names that a source imports; `from a import b` gives a and a.b."""
    for module, names, plain in _IMPORT.findall(source):
        yield plain or module
        yield from (f"{module}.{name}" for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", names.strip("()")) if module)


def _above(name: str) -> Iterable[str]:
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts)))


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
