"""Tokenizers: one of bytes, which needs no download, and those of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from llmexp.inputs.instructions import Message

BYTE_VOCABULARY = 257
END_OF_DOCUMENT = 256


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
    return Bytes() if name == "bytes" else OfTransformers(name)
