"""Tokenizers: one of bytes, which needs no download, and those of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Protocol

from llmexp.inputs.byte_tokens import BYTE_VOCABULARY, BYTES, END_OF_DOCUMENT
from llmexp.inputs.instructions import Message

END = "<|endoftext|>"
# How words begin that are in no text.
MADE_UP = "zq"


class Template(Protocol):
    """A chat template, which writes the turns of a conversation as text."""

    def __call__(self, turns: Sequence[Message], *, answer_begins: bool) -> str:
        """Return the text of the turns, followed by what precedes an answer if `answer_begins`."""


class Tokenizer(Protocol):
    """A tokenizer, which turns texts into tokens."""

    size: int
    begin: Sequence[int]
    """Tokens before a text; empty for most tokenizers."""
    end: Sequence[int]
    """Tokens that end a document or an answer; empty where the tokenizer has no such token."""
    template: Template | None
    """The tokenizer's own chat template, or None."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without those that begin or end it."""


class Bytes:
    """A tokenizer of UTF-8 bytes, with one more token for the end."""

    size = BYTE_VOCABULARY
    begin: Sequence[int] = ()
    end: Sequence[int] = (END_OF_DOCUMENT,)
    template: Template | None = None

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text."""
        return [*text.encode()]


class OfTransformers:
    """A tokenizer of transformers, loaded by folder or hub name."""

    def __init__(self, name: str) -> None:
        from transformers import AutoTokenizer

        self.loaded: Any = AutoTokenizer.from_pretrained(name)
        self.size = len(self.loaded)
        first, last = self.loaded.bos_token_id, self.loaded.eos_token_id
        self.begin: Sequence[int] = [token for token in self.loaded("").input_ids if token == first]
        self.end: Sequence[int] = [] if last is None else [last]
        self.template: Template | None = self._rendered if self.loaded.chat_template else None

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without the special ones."""
        found: list[int] = self.loaded.encode(text, add_special_tokens=False)
        return found

    def _rendered(self, turns: Sequence[Message], *, answer_begins: bool) -> str:
        text: str = self.loaded.apply_chat_template(
            [turn._asdict() for turn in turns], tokenize=False, add_generation_prompt=answer_begins
        )
        return text


def tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer that data.tokenizer names: 'bytes', or a folder or hub name of transformers."""
    return Bytes() if name == BYTES else OfTransformers(name)


def save_bytes(folder: Path, size: int) -> None:
    """Write the tokenizer of bytes into a model's folder, as transformers and servers read it.

    Every other token of the vocabulary is a word that no text has: a server that takes text can be sent random ones.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = _letters()
    words = (letters[ord(" ")] + MADE_UP + "".join(word) for word in product(ascii_lowercase, repeat=4))
    vocabulary = [*letters, END, *islice(words, size - BYTE_VOCABULARY)]
    tokens = {text: token for token, text in enumerate(vocabulary)}
    made = Tokenizer(models.BPE(vocab=tokens, merges=[], ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(END, special=True)])
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END).save_pretrained(folder)


def _letters() -> list[str]:
    """Return the letter by which byte-level tokenizers write each byte: itself where it prints, else one above 255."""
    prints = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in prints else next(others)) for byte in range(256)]
