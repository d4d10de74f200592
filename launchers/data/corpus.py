"""Sources of texts: files, the running Python's own library, or a Hugging Face dataset."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmexp.launchers.data.text_files import text_files
from llmexp.training.config import HfData, TextData


def texts(data: TextData | HfData, seed: int) -> Iterator[str]:
    """Yield the documents in an order that the seed fixes."""
    if isinstance(data, HfData):
        for record in hf_dataset(data.path, data.split).shuffle(seed=seed):
            yield record[data.field]
        return
    paths = text_files(data.files)
    random.Random(seed).shuffle(paths)
    for path in paths:
        yield path.read_text(encoding="utf-8", errors="replace")


def hf_dataset(place: str, split: str) -> Any:
    """Load a split of a dataset by hub name, from a folder, or from a file of a known format."""
    import datasets

    path = Path(place)
    if path.suffix.lstrip(".") in ("json", "jsonl", "parquet", "csv", "txt") and path.exists():
        kind = {"jsonl": "json", "txt": "text"}.get(path.suffix.lstrip("."), path.suffix.lstrip("."))
        return datasets.load_dataset(kind, data_files=str(path), split=split)
    if (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
        loaded = datasets.load_from_disk(str(path))
        return loaded[split] if isinstance(loaded, datasets.DatasetDict) else loaded
    return datasets.load_dataset(place, split=split)
