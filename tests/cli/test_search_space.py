from __future__ import annotations

from collections.abc import Iterator

import pytest
from hydra.core.config_loader import ConfigLoader

from llmexp.cli.app import hydra_app
from llmexp.cli.search_space import search_words
from llmexp.sweep.search.space import Dimension, SearchChoices, SearchRange, points_of, probes_of


@pytest.fixture(scope="module")
def loader() -> Iterator[ConfigLoader]:
    with hydra_app() as hydra:
        yield hydra.config_loader


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("batch.micro=1,2,4", SearchChoices("batch.micro", ("1", "2", "4"))),
        ("batch.micro=choice(1, 2, 2)", SearchChoices("batch.micro", ("1", "2"))),
        ("++optimizer.lr=interval(1e-5, 1e-2)", SearchRange("optimizer.lr", 1e-5, 1e-2)),
        ("optimizer.lr=tag(log, interval(1e-5, 1e-2))", SearchRange("optimizer.lr", 1e-5, 1e-2, log=True)),
        ("seed=int(interval(1, 8))", SearchRange("seed", 1, 8, whole=True)),
        ("seed=range(1, 8)", SearchRange("seed", 1, 7, whole=True)),
        ("seed=range(1, 8, 3)", SearchRange("seed", 1, 7, 3, whole=True)),
        ("optimizer.lr=range(0, 1, 0.25)", SearchChoices("optimizer.lr", ("0.0", "0.25", "0.5", "0.75"))),
    ],
)
def test_hydras_words_for_several_values_are_dimensions(loader: ConfigLoader, word: str, found: Dimension) -> None:
    assert search_words(loader, ["model=tiny", word]).space == [found]


def test_a_trial_has_the_fixed_words_and_its_values_and_the_last_word_of_a_key_counts(loader: ConfigLoader) -> None:
    words = search_words(loader, ["++seed=1", "++batch.micro=8", "model=tiny", "++batch.micro=1,2", "++seed=3"])
    assert words.of({"batch.micro": "2"}) == ["++seed=3", "model=tiny", "++batch.micro=2"]


def test_points_are_counted_where_they_can_be() -> None:
    choices, whole = SearchChoices("a", ("1", "2")), SearchRange("b", 1, 7, 3, whole=True)
    assert points_of([choices, whole]) == 6
    assert points_of([choices, SearchRange("c", 0.0, 1.0)]) is None
    assert points_of([SearchRange("d", 1, 10**9, whole=True)]) is None


def test_every_choice_and_the_ends_of_ranges_are_planned_first() -> None:
    found = probes_of([SearchChoices("a", ("1", "2", "3")), SearchRange("b", 1, 7, whole=True)])
    assert found == [{"a": a, "b": b} for a, b in (("1", "1"), ("2", "1"), ("3", "1"), ("1", "7"))]
