"""The pages for users are plain English: short sentences, the field's words.

`make lint` adds what proselint knows.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import PAGES, ROOT, name, prose

# Written by hand, for users: what is generated or was measured stands below docs/ in folders of its own.
WRITTEN = [page for page in PAGES if page.parent in (ROOT, ROOT / "docs")] + [ROOT / "CONTRIBUTING.md"]
# One long table, in which a reader looks for a name.
LOOKED_UP = ROOT / "docs" / "systems.md"
MOST_WORDS = 25
# Without code and the bars of tables: what one reads in some two hours.
MOST_WORDS_OF_ALL = 36_500
# Words of a private dialect, with the field's or a plain one.
PRIVATE = {
    "surely": "certain, or nothing",
    "knee": "saturation",
    "kept up": "sustained",
    "not known whether": "unknown",
    "by and by": "gradually",
    "stood in": "disturbed",
    "utilise": "use",
    "in order to": "to",
}
LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
ITEM = re.compile(r"\n\s*\n|\n(?=\s*(?:- |\d+\. ))")
END = re.compile(r"(?<=[.!?:;])\s+")


def sentences(page: Path) -> list[str]:
    """The sentences of a page's prose: no code, no tables, no headings; a span of code is a word."""
    lines = [line for line in page.read_text().splitlines() if not line.startswith(("    ", "|", "#", "!["))]
    text = CODE.sub("X", LINKED.sub(r"\1", "\n".join(lines)))
    paragraphs = (" ".join(part.split()) for part in ITEM.split(text))
    return [sentence for paragraph in paragraphs for sentence in END.split(paragraph) if sentence]


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_its_sentences_are_short(page: Path) -> None:
    assert [sentence for sentence in sentences(page) if len(sentence.split()) > MOST_WORDS] == []


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_it_has_no_words_of_a_private_dialect(page: Path) -> None:
    text = " ".join(page.read_text().lower().split())
    assert {word: plain for word, plain in PRIVATE.items() if re.search(rf"\b{word}\b", text)} == {}


def test_all_of_it_can_be_read() -> None:
    words = (word for page in WRITTEN if page != LOOKED_UP for word in prose(page).split())
    assert sum(bool(re.search(r"\w", word)) for word in words) < MOST_WORDS_OF_ALL
    assert len(WRITTEN) <= 31


def test_a_long_sentence_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Head\n\nShort.\n\n- {'word ' * 31}`code of many words`.\n\n    {'code ' * 40}\n")
    assert [len(sentence.split()) for sentence in sentences(page)] == [1, 33]
