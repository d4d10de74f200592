"""What the ranks read: the same sequences in the same order for every engine and layout, made before the first step."""

from __future__ import annotations

import random
import sysconfig
from array import array
from collections.abc import Callable, Iterator, Sequence
from glob import glob
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch

from llmexp.errors import ConfigError
from llmexp.measure.loop import MicroBatch
from llmexp.record.result import Batch
from llmexp.schema import DataConfig

IGNORED = -100
BYTE_VOCABULARY = 257
END_OF_DOCUMENT = 256

Encoder = Callable[[str], list[int]]


class Sequences:
    """A fixed number of sequences, ids and labels both [number, seq_len]; index i of a run is row i modulo number.

    records: of one pass over the data; None where it has more than these or no end.
    """

    def __init__(self, ids: torch.Tensor, labels: torch.Tensor, records: int | None = None) -> None:
        self.ids, self.labels, self.records = ids, labels, records

    def shuffled(self, number: int, seed: int) -> Sequences:
        """The first `number` in an order that the seed fixes, then the rest: the text of one file would else decide the loss of many steps."""
        first = torch.randperm(min(number, len(self.ids)), generator=torch.Generator().manual_seed(seed))
        order = torch.cat([first, torch.arange(len(first), len(self.ids))])
        ids = self.ids[order]
        # Packed sequences are their own labels: large budgets must not hold them twice.
        return Sequences(ids, ids if self.labels is self.ids else self.labels[order], self.records)

    def micro_batch(self, first: int, micro: int, device: torch.device) -> MicroBatch:
        """Rows first to first + micro, moved to `device` without waiting."""
        rows = torch.arange(first, first + micro) % len(self.ids)
        ids, labels = self.ids[rows], self.labels[rows]
        real = int((labels != IGNORED).sum())
        if device.type == "cuda":
            ids, labels = ids.pin_memory(), labels.pin_memory()
        return MicroBatch(ids.to(device, non_blocking=True), labels.to(device, non_blocking=True), real, samples=micro)


def batches(sequences: Sequences, replica: int, replicas: int, batch: Batch, device: torch.device) -> Iterator[list[MicroBatch]]:
    """The passes of each step for one data-parallel replica: replicas take neighbouring blocks of one global order."""
    for step in count():
        first_pass = step * batch.accumulation
        blocks = [(first_pass + index) * replicas + replica for index in range(batch.accumulation)]
        yield [sequences.micro_batch(block * batch.micro, batch.micro, device) for block in blocks]


def load(data: DataConfig, vocab_size: int, number: int, seed: int) -> Sequences:
    """Make at most `number` sequences; raises ConfigError for missing files and for a tokenizer larger than the model's vocabulary."""
    if data.name == "synthetic":
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(vocab_size, (number, data.seq_len), generator=generator)
        return Sequences(ids, ids.clone())
    encode, size = tokenizer(data.tokenizer)
    if size > vocab_size:
        raise ConfigError(f"data.tokenizer={data.tokenizer} has {size} tokens, the model's vocabulary only {vocab_size}")
    documents = (encode(text) for text in texts(data, seed))
    sequences = _packed(documents, data.seq_len, number) if data.pack else _padded(documents, data.seq_len, number)
    if not len(sequences.ids):
        raise ConfigError(f"data={data.name} gave less than one sequence of {data.seq_len} tokens")
    return sequences


def tokenizer(name: str) -> tuple[Encoder, int]:
    """An encoder that ends each document with its end token, and the number of its tokens. 'bytes' needs no download."""
    if name == "bytes":
        return (lambda text: [*text.encode(), END_OF_DOCUMENT]), BYTE_VOCABULARY
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(name)
    end = [loaded.eos_token_id] if loaded.eos_token_id is not None else []
    return (lambda text: loaded.encode(text, add_special_tokens=False) + end), len(loaded)


def texts(data: DataConfig, seed: int) -> Iterator[str]:
    """The documents of a text or hf section, in an order that the seed fixes."""
    if data.name == "hf":
        for record in _hf_dataset(data).shuffle(seed=seed):
            yield record[data.field]
        return
    paths = text_files(data.files)
    random.Random(seed).shuffle(paths)
    for path in paths:
        yield path.read_text(encoding="utf-8", errors="replace")


def text_files(patterns: Sequence[str]) -> list[Path]:
    """Files that the patterns name, folders taken whole, sorted; without patterns the running Python's own library sources."""
    if not patterns:
        library = Path(sysconfig.get_path("stdlib"))
        return sorted(path for path in library.glob("*.py")) + sorted(library.glob("[a-z]*/*.py"))
    found: list[Path] = []
    for pattern in patterns:
        matches = sorted(Path(match) for match in glob(str(Path(pattern).expanduser()), recursive=True))
        if not matches:
            raise ConfigError(f"data.files: nothing matches {pattern}")
        for match in matches:
            found += sorted(path for path in match.rglob("*") if path.is_file()) if match.is_dir() else [match]
    return found


def _hf_dataset(data: DataConfig) -> Any:
    import datasets

    path = Path(data.path or "")
    if path.suffix.lstrip(".") in ("json", "jsonl", "parquet", "csv", "txt") and path.exists():
        kind = {"jsonl": "json", "txt": "text"}.get(path.suffix.lstrip("."), path.suffix.lstrip("."))
        return datasets.load_dataset(kind, data_files=str(path), split=data.split)
    if (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
        loaded = datasets.load_from_disk(str(path))
        return loaded[data.split] if isinstance(loaded, datasets.DatasetDict) else loaded
    return datasets.load_dataset(data.path, split=data.split)


def _packed(documents: Iterator[list[int]], seq_len: int, number: int) -> Sequences:
    stream = array("q")
    for document in documents:
        stream.extend(document)
        if len(stream) >= number * seq_len:
            break
    rows = min(number, len(stream) // seq_len)
    ids = torch.tensor(stream[: rows * seq_len], dtype=torch.int64).reshape(rows, seq_len)
    return Sequences(ids, ids, rows if rows < number else None)


def _padded(documents: Iterator[list[int]], seq_len: int, number: int) -> Sequences:
    kept = [document[:seq_len] for document in islice(documents, number)]
    ids = torch.zeros(len(kept), seq_len, dtype=torch.int64)
    labels = torch.full_like(ids, IGNORED)
    for row, document in enumerate(kept):
        ids[row, : len(document)] = labels[row, : len(document)] = torch.tensor(document)
    return Sequences(ids, labels, len(kept) if len(kept) < number else None)
