"""Notes below a table: which are shown, and for which rows."""

from __future__ import annotations

import pytest

from llmexp.report.notes import folded


def test_doubts_that_differ_in_numbers_alone_are_one_note_with_their_range() -> None:
    said = "unstable: contention: other processes took {} of 2 cores (highest load average {})"
    notes = [said.format("0.76", "3.9"), said.format("1.53", "12.1"), said.format("0.80", "3.9")]
    shown = said.format("0.76 to 1.53", "3.9 to 12.1")
    assert folded(notes) == dict.fromkeys(notes, shown)


@pytest.mark.parametrize(
    "notes",
    [
        ["the rank ended with exit code 1", "the rank ended with exit code 137"],
        ["unstable: drift: bf16 took 2", "unstable: drift: fp32 took 2"],
        ["unstable: noise: 2 %", "stability unknown: noise: 3 %"],
    ],
)
def test_other_notes_stay_apart(notes: list[str]) -> None:
    assert folded(notes) == {note: note for note in notes}
