"""The documents of a run: some calibrate, others, of other files, judge; the seed says which."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from llmexp.compress.config import CalibrationText
from llmexp.errors import ConfigError
from llmexp.launchers.data.text_files import text_files
from llmexp.launchers.data.tokenizers import Tokenizer, tokenizer

Tokens = list[int]
WINDOW = 16


@dataclass(frozen=True)
class SplitText:
    """Sequences of seq_len tokens that calibrate, and held-out documents, each in parts of at most seq_len tokens.

    Where recovery reads domains, they are split in the same way.
    """

    calibration: list[Tokens]
    held_out: list[list[Tokens]]
    domains: dict[str, SplitText] = field(default_factory=dict)

    @property
    def held_out_parts(self) -> list[Tokens]:
        """The parts of all held-out documents."""
        return [part for document in self.held_out for part in document]

    @property
    def calibration_tokens(self) -> int:
        """The tokens of all sequences that calibrate."""
        return sum(map(len, self.calibration))

    @property
    def overlap(self) -> float:
        """The share of the held-out windows of 16 tokens that stand in what calibrates or trains too."""
        read = itertools.chain(self.calibration, *(domain.calibration for domain in self.domains.values()))
        known = {window for sequence in read for window in _windows(sequence)}
        found = [window in known for part in self.held_out_parts for window in _windows(part)]
        return sum(found) / max(1, len(found))


def split_text(text: CalibrationText, seed: int, vocabulary: int, key: str = "text.files") -> SplitText:
    """Read a key's documents; raise ConfigError where there are too few, or tokens that the model does not know."""
    reads = tokenizer(text.tokenizer)
    if reads.size > vocabulary:
        raise ConfigError(
            f"text.tokenizer={text.tokenizer} has {reads.size} tokens, and the model knows {vocabulary}: "
            "choose the model's own"
        )
    documents = _documents(text, seed, reads)
    parts = (_parts(tokens[: text.document_tokens], text.seq_len, reads.begin) for tokens in documents)
    held_out = list(islice(parts, text.held_out_documents))
    calibration = list(islice(_sequences(documents, text.seq_len, reads), text.calibration_sequences))
    if len(held_out) < text.held_out_documents or len(calibration) < text.calibration_sequences:
        raise ConfigError(
            f"{key}: {len(held_out)} held-out documents and then {len(calibration)} sequences of {text.seq_len} tokens "
            "are there: name more files, or set text.held_out_documents and text.calibration_sequences to no more"
        )
    return SplitText(calibration, held_out)


def _documents(text: CalibrationText, seed: int, reads: Tokenizer) -> Iterator[Tokens]:
    """Yield the tokens of the files in the seed's order, without those shorter than a window."""
    paths = text_files(text.files)
    random.Random(seed).shuffle(paths)
    read = (reads.encode(path.read_text(encoding="utf-8", errors="replace")) for path in paths)
    return (tokens for tokens in read if len(tokens) > WINDOW)


def _parts(tokens: Tokens, seq_len: int, begin: Sequence[int]) -> list[Tokens]:
    """Cut a document; each part begins as a text does, and a rest too short to predict a token is left out."""
    room = seq_len - len(begin)
    cut = ([*begin, *tokens[at : at + room]] for at in range(0, len(tokens), room))
    return [part for part in cut if len(part) > max(1, len(begin))]


def _sequences(documents: Iterable[Tokens], seq_len: int, reads: Tokenizer) -> Iterator[Tokens]:
    """Yield full sequences of documents, one after another, each document with its end."""
    waiting: Tokens = []
    for tokens in documents:
        waiting += [*tokens, *reads.end]
        room = seq_len - len(reads.begin)
        while len(waiting) >= room:
            yield [*reads.begin, *waiting[:room]]
            del waiting[:room]


def _windows(tokens: Tokens) -> Iterator[int]:
    """Yield a digest of each window: windows themselves would fill the memory."""
    return (hash(tuple(tokens[at : at + WINDOW])) for at in range(len(tokens) - WINDOW + 1))
