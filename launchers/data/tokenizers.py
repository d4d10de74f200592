"""Tokenizers: bytes, which need no download, or one of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from llmexp.plan.instructions import Message

BYTE_VOCABULARY = 257
END_OF_DOCUMENT = 256


class Template(Protocol):
    """Turns of a conversation to text."""

    def __call__(self, turns: Sequence[Message], *, answer_begins: bool) -> str:
        """The turns, and at will what stands before an answer."""


class Tokenizer(Protocol):
    """Texts to tokens."""

    size: int
    begin: Sequence[int]
    """What it puts before a text; nothing for most."""
    end: Sequence[int]
    """What ends a document or an answer; nothing where it has no such token."""
    template: Template | None
    """Its own chat template, where it has one."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text alone."""


class Bytes:
    """UTF-8, and one token for the end."""

    size = BYTE_VOCABULARY
    begin: Sequence[int] = ()
    end: Sequence[int] = (END_OF_DOCUMENT,)
    template: Template | None = None

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        return [*text.encode()]


class OfTransformers:
    """By folder or hub name."""

    def __init__(self, name: str) -> None:
        from transformers import AutoTokenizer

        self._loaded: Any = AutoTokenizer.from_pretrained(name)
        self.size = len(self._loaded)
        first, last = self._loaded.bos_token_id, self._loaded.eos_token_id
        self.begin: Sequence[int] = [token for token in self._loaded("").input_ids if token == first]
        self.end: Sequence[int] = [] if last is None else [last]
        self.template: Template | None = self._rendered if self._loaded.chat_template else None

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        found: list[int] = self._loaded.encode(text, add_special_tokens=False)
        return found

    def _rendered(self, turns: Sequence[Message], *, answer_begins: bool) -> str:
        text: str = self._loaded.apply_chat_template(
            [turn._asdict() for turn in turns], tokenize=False, add_generation_prompt=answer_begins
        )
        return text


def tokenizer(name: str) -> Tokenizer:
    """By the name that data.tokenizer gives: 'bytes', or a folder or hub name of transformers."""
    return Bytes() if name == "bytes" else OfTransformers(name)
