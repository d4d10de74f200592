"""Words that name a table or figure, and the letters of notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.paper.views.names import ROMAN, TITLES, experiment_of, name_of, place_of, words_of
from llmexp.paper.views.notes import Notes

EXPERIMENTS = Path(__file__).parents[3] / "conf" / "experiment"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("table03", "table03"),
        ("table3", "table03"),
        ("Table_10", "table10"),
        ("fig4", "fig04"),
        ("figure15", "fig15"),
        ("paper_table09", "table09"),
        ("IV", "table04"),
        ("I", "table01"),
        ("table17", None),
        ("outputs", None),
        ("tables", None),
    ],
)
def test_a_word_means_a_table(word, name) -> None:
    assert name_of(word) == name


def test_every_table_and_figure_has_its_experiment() -> None:
    assert {experiment_of(name) for name in TITLES if name != "table01"} == {
        path.stem for path in EXPERIMENTS.glob("paper_*.yaml")
    }
    assert {words_of(name) for name in ROMAN.values()} == {f"table {number} of the paper" for number in ROMAN}
    assert [place_of(name) for name in ("table01", "table02", "table03", "table04")] == [0, 1, 2, 3]


def test_notes_have_a_letter_each_that_goes_on_after_z() -> None:
    notes = Notes()
    assert notes.mark("one", "", "two") == " (a, b)"
    assert notes.mark("two") == " (b)"
    assert notes.mark("") == ""
    assert [notes.mark(str(number)) for number in range(26)][-1] == " (ab)"
    assert notes.lines[:2] == ["(a) one", "(b) two"]
