from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.serving.plan import lines
from llmexp.serving.plan.lines import numbered_lines


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "any"


def test_blank_lines_count_and_line_ends_of_every_kind_are_left_out(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfone\r\n\n  two \nthree")
    assert list(numbered_lines(file, "key")) == [(1, "one"), (3, "two"), (4, "three")]


def test_no_more_is_read_than_is_asked_for(file: Path) -> None:
    file.write_bytes(b"one\n" + b"\xff\n")
    assert next(numbered_lines(file, "key")) == (1, "one")


def test_what_is_no_text_is_named_with_its_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"one\n\xff\xfe\n")
    with pytest.raises(ConfigError, match=r"^key: .*any:2: no UTF-8"):
        list(numbered_lines(file, "key"))
    monkeypatch.setattr(lines, "LINE_BYTES", 5)
    file.write_bytes(b"one\n" + b"x" * 50)
    with pytest.raises(ConfigError, match=r"^key: .*any:2: the line has more than 5 bytes"):
        list(numbered_lines(file, "key"))


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^key=.*none: cannot be read: No such file"):
        list(numbered_lines(tmp_path / "none", "key"))
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        list(numbered_lines(tmp_path, "key"))
