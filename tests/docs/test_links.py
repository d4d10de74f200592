"""The pages lead to each other and to files that there are, and can be read in a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import LINKING, PAGES, ROOT, anchors, links, name, prose, spans

# Folders whose files are named as they lie in the checkout.
FOLDERS = re.compile(r"(llmexp|tests|conf|launchers|chaos|benchmarks|hydra_plugins|docs|locked)/[\w./*-]*")


@pytest.mark.parametrize("page", LINKING, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert {page for page in PAGES if page.parent == index.parent} - linked == {index}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_files_that_it_names_are_there(page: Path) -> None:
    named = [span.rstrip("/") for span in spans(page) if FOLDERS.fullmatch(span)]
    assert [path for path in named if not any(ROOT.glob(path))] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_tests_that_it_names_are_there(page: Path) -> None:
    named = [span.partition("::") for span in spans(page) if span.startswith("tests/") and "::" in span]
    assert [test for file, _, test in named if f"def {test}(" not in (ROOT / file).read_text()] == []


# Tables that llmexp wrote stand as it wrote them, beside the CSV of the same runs.
WRITTEN = [page for page in PAGES if not page.with_suffix(".csv").exists()]


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_its_prose_fits_a_terminal(page: Path) -> None:
    assert [line for line in prose(page).splitlines() if len(line) > 120 and not line.startswith("|")] == []
