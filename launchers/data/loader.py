"""Loads the training data: the same sequences in the same order for every engine and layout."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import count

import torch

from llmexp.errors import ConfigError
from llmexp.launchers.data import instructions
from llmexp.launchers.data.corpus import texts
from llmexp.launchers.data.sequences import Example, Sequences, padded
from llmexp.launchers.data.tokenizers import Tokenizer, tokenizer
from llmexp.measure.batch import MicroBatch
from llmexp.record.result import Batch
from llmexp.training.config import DataConfig, HfData, InstructionsData, SyntheticData, TextData


def batches(
    sequences: Sequences, replica: int, replicas: int, batch: Batch, device: torch.device
) -> Iterator[list[MicroBatch]]:
    """Yield the passes of each step for one data-parallel replica.

    Replicas take neighboring blocks of one global order.
    """
    for step in count():
        yield passes_of(sequences, step, (replica, replicas), batch, device)


def passes_of(
    sequences: Sequences, step: int, place: tuple[int, int], batch: Batch, device: torch.device
) -> list[MicroBatch]:
    """Return the passes of one step; `place` is the replica's number and how many there are."""
    replica, replicas = place
    first_pass = step * batch.accumulation
    blocks = [(first_pass + index) * replicas + replica for index in range(batch.accumulation)]
    of_step = sequences.in_step(step)
    return [of_step.micro_batch(block * batch.micro, batch.micro, device) for block in blocks]


def load(data: DataConfig, vocab_size: int, number: int, seed: int) -> Sequences:
    """Make at most `number` sequences before the first step.

    Raises ConfigError for missing files and for a tokenizer larger than the model's vocabulary.
    """
    if isinstance(data, SyntheticData):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(vocab_size, (number, data.seq_len), generator=generator)
        return Sequences(ids, ids.clone())
    chosen = tokenizer(data.tokenizer)
    if chosen.size > vocab_size:
        raise ConfigError(
            f"data.tokenizer={data.tokenizer} has {chosen.size} tokens, but the model's vocabulary only {vocab_size}"
        )
    sequences = (
        instructions.load(data, chosen, number, seed)
        if isinstance(data, InstructionsData)
        else _text(data, chosen, number, seed)
    )
    if not len(sequences.ids):
        less = "no record whose answer begins within" if data.name == "instructions" else "less than one sequence of"
        raise ConfigError(f"data={data.name} gave {less} {data.seq_len} tokens")
    return sequences


def _text(data: TextData | HfData, chosen: Tokenizer, number: int, seed: int) -> Sequences:
    documents = ([*chosen.encode(text), *chosen.end] for text in texts(data, seed))
    if data.pack:
        return _joined(documents, data.seq_len, number)
    return padded((Example(document, document) for document in documents), data.seq_len, number)


def _joined(documents: Iterator[list[int]], seq_len: int, number: int) -> Sequences:
    stream = array("q")
    for document in documents:
        stream.extend(document)
        if len(stream) >= number * seq_len:
            break
    rows = min(number, len(stream) // seq_len)
    ids = torch.tensor(stream[: rows * seq_len], dtype=torch.int64).reshape(rows, seq_len)
    return Sequences(ids, ids, rows if rows < number else None)
