"""Which documents calibrate and which judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.compress.config import CalibrationText
from llmexp.errors import ConfigError
from llmexp.launchers.compress.text import split_text


def _files(folder: Path, texts: list[str]) -> Path:
    for number, text in enumerate(texts):
        (folder / f"{number:02}.txt").write_text(text)
    return folder


def _text(folder: Path, **keys: int) -> CalibrationText:
    sizes = {"seq_len": 32, "calibration_sequences": 4, "held_out_documents": 2, "document_tokens": 70} | keys
    return CalibrationText(files=(str(folder),), **sizes)


def _letters(number: int) -> str:
    """A hundred letters that no other number has, none of them twice within a window."""
    return "".join(chr(33 + (number * 17 + place * (number + 2)) % 89) for place in range(100))


def test_no_document_both_calibrates_and_judges(tmp_path: Path) -> None:
    found = split_text(_text(_files(tmp_path, [chr(97 + number) * 100 for number in range(8)])), 0, 257)
    judging = {token for part in found.held_out_parts for token in part}
    calibrating = {token for sequence in found.calibration for token in sequence}
    assert len(judging) == 2
    assert not judging & calibrating
    assert found.overlap == 0.0
    assert [len(sequence) for sequence in found.calibration] == [32] * 4
    assert found.calibration_tokens == 128


def test_a_document_is_cut_into_parts_up_to_its_limit(tmp_path: Path) -> None:
    found = split_text(_text(_files(tmp_path, [_letters(number) for number in range(8)])), 0, 257)
    assert [[len(part) for part in document] for document in found.held_out] == [[32, 32, 6]] * 2


def test_more_calibration_leaves_the_held_out_documents_as_they_are(tmp_path: Path) -> None:
    folder = _files(tmp_path, [_letters(number) for number in range(8)])
    little, much = (split_text(_text(folder, calibration_sequences=count), 3, 257) for count in (2, 9))
    assert little.held_out == much.held_out
    assert split_text(_text(folder), 4, 257).held_out != little.held_out


def test_overlap_is_the_share_of_windows_that_calibration_has_too(tmp_path: Path) -> None:
    """Every file has the same text, and the first 32 of its tokens are all of the calibration."""
    folder = _files(tmp_path, [_letters(1)] * 3)
    found = split_text(_text(folder, calibration_sequences=1, held_out_documents=1), 0, 257)
    parts = found.held_out[0]
    assert found.calibration[0] == parts[0]
    assert found.overlap == pytest.approx(17 / (17 + 17))


def test_too_few_documents_are_told_in_a_line(tmp_path: Path) -> None:
    folder = _files(tmp_path, [_letters(number) for number in range(3)])
    with pytest.raises(ConfigError, match=": 2 held-out documents and then 3 sequences of 32 tokens"):
        split_text(_text(folder), 0, 257)


def test_a_tokenizer_with_tokens_that_the_model_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"text\.tokenizer=bytes has 257 tokens, and the model knows 256"):
        split_text(_text(_files(tmp_path, ["text"])), 0, 256)
