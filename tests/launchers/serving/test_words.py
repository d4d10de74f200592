from __future__ import annotations

import random

import pytest

from llmexp.errors import ConfigError
from llmexp.launchers.serving.words import MOST, text_of, tokens_of, vocabulary, word


def test_text_and_tokens_are_the_same_thing() -> None:
    tokens = random.Random(0).sample(range(MOST), 1000)
    assert tokens_of(text_of(tokens)) == tokens
    assert text_of([5, 511, 0]) == " aaaf aatr aaaa"
    assert tokens_of("") == []


def test_the_vocabulary_has_the_words_in_order_and_each_once() -> None:
    words = vocabulary(151_936)
    assert [words[token] for token in (0, 1, 26, 151_935)] == [word(token) for token in (0, 1, 26, 151_935)]
    assert len(set(words)) == 151_936


@pytest.mark.parametrize("text", [" aaa", "aaaf ", " aaaF", " aaaf aatr\n"])
def test_a_text_that_no_such_model_writes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no whole number of words|is no token's word"):
        tokens_of(text)


def test_a_vocabulary_without_enough_words_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"has {MOST} tokens at most"):
        vocabulary(MOST + 1)
