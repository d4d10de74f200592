"""The files of docs/changes against towncrier's configuration: it leaves out, in silence, what it does not know."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOWNCRIER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]


def test_every_change_has_a_part_of_the_changelog() -> None:
    parts = "|".join(kind["directory"] for kind in TOWNCRIER["type"])
    files = [path.name for path in (ROOT / TOWNCRIER["directory"]).iterdir() if path.name != "README.md"]
    assert not [name for name in files if not re.fullmatch(rf"\+[\w-]+\.({parts})\.md", name)]


def test_the_changelog_has_the_place_where_versions_are_added() -> None:
    changelog = (ROOT / TOWNCRIER["filename"]).read_text()
    assert changelog.count(TOWNCRIER["start_string"]) == 1
    parts = [kind["name"] for kind in TOWNCRIER["type"]]
    assert [part for part in re.findall(r"^### (.+)$", changelog, re.MULTILINE) if part in parts] == parts
