"""Copies of published servers share the cards, and what holds no request has no speed."""

from __future__ import annotations

import pytest

from benchmarks.advice.served_recipe import CARDS, ServedOption, published, served_options, served_part


@pytest.fixture(scope="module")
def ranked() -> list[ServedOption]:
    return served_options()


def test_the_newest_version_of_a_server_counts() -> None:
    versions = {(one.row["weights"], one.row["cards"]): one.row["version"] for one in published()}
    assert versions == {("fp8", "2"): "1.0", ("fp8", "8"): "0.14.0", ("fp16", "8"): "0.14.0"}


def test_copies_fill_the_cards_and_their_speeds_add_up(ranked) -> None:
    assert all(one.copies * one.tp == CARDS for one in ranked)
    two = next(one for one in ranked if (one.weights, one.tp) == ("fp8", 2))
    assert two.measured == 4 * 6651


def test_what_holds_no_request_is_last_and_without_speed(ranked) -> None:
    assert ranked == sorted(ranked, key=lambda one: -one.predicted)
    assert {(one.weights, one.tp) for one in ranked if not one.predicted} == {("fp8", 1), ("fp16", 1), ("fp16", 2)}


def test_the_fastest_published_server_is_ranked_first(ranked) -> None:
    assert ranked[0] == max(ranked, key=lambda one: one.measured or 0.0)
    assert "no room" in "\n".join(served_part())
