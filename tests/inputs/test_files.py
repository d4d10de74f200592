"""Files of patterns, and the digest by which other content is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.inputs import files


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    for name, text in (("a.txt", "one"), ("b.txt", "two")):
        (tmp_path / name).write_text(text)
    return files.matching([str(tmp_path)])


def test_a_digest_tells_content_and_order_not_the_place(texts: list[Path], tmp_path: Path) -> None:
    before, elsewhere = files.digest(texts), tmp_path / "elsewhere"
    elsewhere.mkdir()
    copies = [path.rename(elsewhere / path.name) for path in texts]
    assert files.digest(copies) == files.digest(files.below(elsewhere)) == before != files.digest(reversed(copies))
    copies[1].write_text("too")
    assert files.digest(copies) != before


def test_of_a_large_file_parts_from_its_beginning_to_its_end_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PARTS", 3)
    monkeypatch.setattr(files, "PART_BYTES", 2)

    def digest_of(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return files.digest([tmp_path / name])

    texts = ["0123456789", "x123456789", "012345678x", "0123x56789", "012345678"]
    assert len({digest_of(f"{place}.txt", text) for place, text in enumerate(texts)}) == len(texts)
    assert digest_of("between.txt", "01x3456789") == digest_of("0.txt", texts[0]), "that is the price"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"gone\.txt cannot be read: No such file"):
        files.digest(files.matching([str(tmp_path / "*.txt")]))
    assert files.below(tmp_path / "nowhere") == []
