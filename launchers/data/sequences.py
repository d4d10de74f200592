"""Sequences of one length as the ranks hold them: tokens, labels, and the records in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch

from llmexp.measure.batch import MicroBatch, Packing

IGNORED = -100
# The number of rows that are filled at a time: enough to find a place for nearly every short record, few enough to read
# no more records than a run needs.
OPEN_ROWS = 32


class Example(NamedTuple):
    """The tokens of one record and the label of each; the label is IGNORED where nothing is to be learned."""

    ids: Sequence[int]
    labels: Sequence[int]


class Sequences:
    """A fixed number of sequences, ids and labels both [number, seq_len]; index i of a run is row i modulo number.

    `records` counts the records of one pass over the data; it is None where the data has more than these or no end.

    `lengths` are those of the records in each row, and the rest of the row is padding; None where one record fills each
    row. `isolated` says whether records in a row must not see each other.
    """

    def __init__(self, ids: torch.Tensor, labels: torch.Tensor, records: int | None = None) -> None:
        self.ids, self.labels, self.records = ids, labels, records
        self.lengths: list[tuple[int, ...]] | None = None
        self.isolated = False
        self.length_of_step: Callable[[int], int] | None = None
        self.what_was_read: dict[str, Any] = {}

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[Example]], seq_len: int, *, isolated: bool = False) -> Sequences:
        """Join each row's records one after another, and pad at the end."""
        ids = torch.zeros(len(rows), seq_len, dtype=torch.int64)
        labels = torch.full_like(ids, IGNORED)
        made = cls(ids, labels)
        made.lengths, made.isolated = [tuple(len(example.ids) for example in row) for row in rows], isolated
        for row, examples in enumerate(rows):
            tokens, learned = ([token for example in examples for token in part(example)] for part in (_ids, _labels))
            ids[row, : len(tokens)], labels[row, : len(tokens)] = torch.tensor(tokens), torch.tensor(learned)
        return made

    def shuffled(self, number: int, seed: int) -> Sequences:
        """Return them with the first `number` shuffled by the seed.

        Unshuffled, the text of one file would decide the loss of many steps.
        """
        first = torch.randperm(min(number, len(self.ids)), generator=torch.Generator().manual_seed(seed))
        order = torch.cat([first, torch.arange(len(first), len(self.ids))])
        ids = self.ids[order]
        # Packed sequences are their own labels: large batches must not hold them twice.
        made = Sequences(ids, ids if self.labels is self.ids else self.labels[order], self.records)
        made.lengths = None if self.lengths is None else [self.lengths[row] for row in order.tolist()]
        made.isolated, made.what_was_read = self.isolated, self.what_was_read
        return made

    def in_step(self, step: int) -> Sequences:
        """Return these sequences, cut to this step's length where lengths grow from step to step."""
        return self if self.length_of_step is None else self._cut(self.length_of_step(step))

    def _cut(self, seq_len: int) -> Sequences:
        made = Sequences(self.ids[:, :seq_len], self.labels[:, :seq_len], self.records)
        made.lengths = (
            None if self.lengths is None else [tuple(min(length, seq_len) for length in row) for row in self.lengths]
        )
        return made

    def micro_batch(self, first: int, micro: int, device: torch.device) -> MicroBatch:
        """Return rows first to first + micro, moved to `device` without waiting."""
        rows = torch.arange(first, first + micro) % len(self.ids)
        ids, labels = self.ids[rows], self.labels[rows]
        seq_len = ids.shape[1]
        lengths = [(seq_len,)] * micro if self.lengths is None else [self.lengths[row] for row in rows.tolist()]
        real, samples = sum(map(sum, lengths)), sum(map(len, lengths))
        packing = _packing(lengths, seq_len, device) if self.isolated else None
        squares = sum(length**2 for row in lengths for length in row)
        return MicroBatch(_sent(ids, device), _sent(labels, device), real, samples, packing, squares)


def packed(examples: Iterable[Example], seq_len: int) -> Iterator[list[Example]]:
    """Yield rows of several records.

    A record goes into the first open row that has room; if none has, the fullest row is given out.
    """
    rows: list[list[Example]] = []
    room: list[int] = []
    for example in examples:
        place = next((place for place, left in enumerate(room) if left >= len(example.ids)), None)
        if place is None:
            if len(rows) == OPEN_ROWS:
                fullest = room.index(min(room))
                room.pop(fullest)
                yield rows.pop(fullest)
            place = len(rows)
            rows.append([])
            room.append(seq_len)
        rows[place].append(example)
        room[place] -= len(example.ids)
    yield from rows


def padded(examples: Iterable[Example], seq_len: int, number: int) -> Sequences:
    """Make at most `number` sequences of one record each, cut to `seq_len`."""
    cut = (Example(example.ids[:seq_len], example.labels[:seq_len]) for example in islice(examples, number))
    made = Sequences.of_rows([[example] for example in cut], seq_len)
    made.records = len(made.ids) if len(made.ids) < number else None
    return made


def _packing(lengths: Sequence[tuple[int, ...]], seq_len: int, device: torch.device) -> Packing:
    """Describe the records' bounds; padding counts as a record of its own, which is never learned."""
    parts = [length for row in lengths for length in (*row, seq_len - sum(row)) if length]
    positions = torch.cat([torch.arange(length) for length in parts]).reshape(len(lengths), seq_len)
    bounds = torch.tensor([0, *parts], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return Packing(_sent(positions, device), _sent(bounds, device), tuple(parts))


def _sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def _ids(example: Example) -> Sequence[int]:
    return example.ids


def _labels(example: Example) -> Sequence[int]:
    return example.labels
