"""The words that stand for tokens: a prompt of exact token ids as text, and the ids of a text.

A server that takes no token ids gets words. Token i is a blank and four letters, i in base 26: ` aaaf` is token 5. A
tokenizer of this vocabulary finds each word as a whole, in any text, so that ids and text are the same thing, and each
generated token is text that is complete by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from string import ascii_lowercase

from llmexp.errors import ConfigError

# How the vocabulary of a byte-level tokenizer writes a blank.
BLANK = "\u0120"
LETTERS = 4
MOST = len(ascii_lowercase) ** LETTERS
_WORD = LETTERS + 1


@cache
def word(token: int) -> str:
    """Return the text of a token."""
    letters = []
    for _ in range(LETTERS):
        token, letter = divmod(token, len(ascii_lowercase))
        letters.append(ascii_lowercase[letter])
    return " " + "".join(reversed(letters))


def text_of(tokens: Iterable[int]) -> str:
    """Return the text that the tokenizer turns into exactly these tokens."""
    return "".join(map(word, tokens))


def tokens_of(text: str) -> list[int]:
    """Return the tokens of a text that a model of this vocabulary generated; raise ValueError for any other text."""
    if len(text) % _WORD:
        raise ValueError(f"{len(text)} characters are no whole number of words")
    return [_token(text[begin : begin + _WORD]) for begin in range(0, len(text), _WORD)]


def vocabulary(size: int) -> list[str]:
    """Return the words of tokens 0 to size - 1; raise ConfigError where there are too few words."""
    if size > MOST:
        raise ConfigError(f"model.vocab_size={size}: the tokenizer that llmexp makes has {MOST} tokens at most")
    return [f" {''.join(letters)}" for letters, _ in zip(product(ascii_lowercase, repeat=LETTERS), range(size))]  # noqa: B905


@cache
def _token(written: str) -> int:
    if written[0] != " " or not all("a" <= letter <= "z" for letter in written[1:]):
        raise ValueError(f"{written!r} is no token's word")
    token = 0
    for letter in written[1:]:
        token = token * len(ascii_lowercase) + ord(letter) - ord("a")
    return token
