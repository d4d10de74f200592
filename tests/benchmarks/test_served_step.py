"""The paper's step of decoding beside its prediction: no constant is fitted to it, but a spread was chosen by it."""

from __future__ import annotations

import pytest

from benchmarks.prediction.served_step import predicted_ms, printed_ms, table
from llmexp.serving.predict.rates import constants


def test_the_papers_parts_are_those_of_its_table() -> None:
    assert printed_ms() == {
        "products": 9.4,
        "keys and values": 23.05,
        "elementwise": pytest.approx(3.06),
        "communication": pytest.approx(11.2),
    }


def test_every_part_has_the_printed_size() -> None:
    printed, predicted = printed_ms(), predicted_ms()
    for part, found in printed.items():
        assert predicted[part] == pytest.approx(found, rel=0.4), part
    assert sum(predicted.values()) == pytest.approx(sum(printed.values()), rel=0.25)


def test_the_parts_follow_their_constants() -> None:
    slow = constants()["fitted"] | {"cache_share": constants()["fitted"]["cache_share"] / 2}
    assert predicted_ms(slow)["keys and values"] == pytest.approx(2 * predicted_ms()["keys and values"])
    assert predicted_ms(slow)["products"] == predicted_ms()["products"]


def test_the_page_has_both() -> None:
    lines = list(table())
    assert "| keys and values | 23.1 | " in "\n".join(lines)
    assert lines[-1].startswith("| all of these | 46.7 | ")
