"""`python -m benchmarks.advice [methods|layouts|recipes|sizes]` ranks what others measured and writes it down."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.advice.choices import choices_of
from benchmarks.advice.held_out import HeldOut, without_odd
from benchmarks.advice.layouts import all_searched, layouts_part
from benchmarks.advice.page import choices_part, sections_of, whole
from benchmarks.advice.recipes import all_recipes, recipes_part
from benchmarks.advice.served_recipe import served_part
from benchmarks.advice.sizes import sizes_part
from benchmarks.prediction.judge import Judge

PAGE = Path("docs/results/advice.md")


def methods() -> Iterator[str]:
    """Yield the section on the paper's methods."""
    ways = list(HeldOut(Judge()).all_ways())
    even = {judged.name: choices_of(without_odd(judged)) for judged in ways}
    odd = {judged.name: choices_of(judged) for judged in ways if any(cell.odd for cell in judged.cells)}
    yield from choices_part(even, odd)


def recipes() -> Iterator[str]:
    """Yield the section on recipes of training and of serving."""
    yield from recipes_part(all_recipes())
    yield ""
    yield from served_part()


SECTIONS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "methods": ("Methods of the paper", methods),
    "layouts": ("Published layouts", lambda: layouts_part(all_searched())),
    "recipes": ("Published recipes", recipes),
    "sizes": ("Layouts by size", sizes_part),
}


def main() -> int:
    """Write the sections that are named, by default all; return 2 for an unknown one."""
    named = sys.argv[1:] or list(SECTIONS)
    if unknown := set(named) - SECTIONS.keys():
        print(f"unknown {', '.join(unknown)}: choices are {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    made = {SECTIONS[name][0]: "\n".join(SECTIONS[name][1]()) for name in named}
    kept = sections_of(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    titles = [title for title, _ in SECTIONS.values()]
    sections = {title: text for title in titles if (text := made.get(title, kept.get(title)))}
    PAGE.write_text(whole(sections), encoding="utf-8")
    print(f"written: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
