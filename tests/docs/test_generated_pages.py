"""The generated pages say what the types say now."""

from __future__ import annotations

import runpy

import pytest
from documents import ROOT

REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    found: dict[str, str] = runpy.run_path(str(REFERENCE / "__main__.py"))["pages"]()
    return found


@pytest.mark.parametrize("name", ["keys.md", "metrics.md", "commands.md"])
def test_the_page_is_up_to_date(name: str, pages: dict[str, str]) -> None:
    assert (REFERENCE / name).read_text() == pages[name], "make reference writes it"


def test_every_key_says_what_it_takes(pages: dict[str, str]) -> None:
    rows = [line for line in pages["keys.md"].splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    assert [row for row in rows if not row.split(" | ")[1]] == []


def test_every_metric_says_what_it_is(pages: dict[str, str]) -> None:
    rows = [line for line in pages["metrics.md"].splitlines() if line.startswith("| `")]
    assert len(rows) > 60
    assert [row for row in rows if not row.rstrip(" |").rpartition(" | ")[2]] == []
