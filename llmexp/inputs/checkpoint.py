"""A reader for the headers of a transformers checkpoint; it needs no torch.

The headers say which tensor lies in which shard, and whether the shards are complete.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from llmexp.errors import ConfigError
from llmexp.schema import HfModel, ModelConfig

ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
PICKLES = ("*.bin", "*.pt", "*.pth")
# The first 8 bytes of a file are the length of its header, little-endian; safetensors refuses longer headers.
LENGTH_BYTES, LONGEST_HEADER_BYTES = 8, 100_000_000
# The digest takes these bytes from the middle of each tensor, where another training of the same shapes differs.
SAMPLE_BYTES = 64


@dataclass(frozen=True)
class Stored:
    """One tensor: its shard, safetensors' name of its dtype, its shape, and begin and end of its bytes in the file."""

    shard: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Checkpoint:
    """A folder with all its tensors by name."""

    folder: Path
    tensors: dict[str, Stored]

    @classmethod
    def read(cls, folder: Path) -> Checkpoint:
        """Read the headers of all shards; raise ConfigError where one is missing, truncated or not safetensors."""
        try:
            return cls(folder, _tensors(folder))
        except OSError as error:
            raise _wrong(folder, str(error)) from None

    @cached_property
    def digest(self) -> str:
        """12 hexadecimal digits of names, dtypes, shapes and a sample of each tensor's bytes."""
        digest = hashlib.sha256()
        for name, stored in sorted(self.tensors.items()):
            digest.update(f"{name} {stored.dtype} {stored.shape} ".encode())
            with stored.shard.open("rb", buffering=0) as file:
                file.seek(max(stored.begin, (stored.begin + stored.end - SAMPLE_BYTES) // 2))
                digest.update(file.read(min(SAMPLE_BYTES, stored.end - stored.begin)))
        return digest.hexdigest()[:12]


def local_checkpoint(model: ModelConfig) -> Checkpoint | None:
    """Read the checkpoint that a run starts from, if it is a local folder.

    None for random weights, hub names, and what another run has yet to make.
    """
    found = model.checkpoint
    if isinstance(found, HfModel) and found.made:
        return None
    folder = Path(found.path).expanduser() if found else None
    return Checkpoint.read(folder) if folder and folder.is_dir() else None


def has_tokenizer(folder: Path) -> bool:
    """Tell whether a tokenizer lies beside the weights."""
    return any((folder / name).is_file() for name in TOKENIZERS)


def _tensors(folder: Path) -> dict[str, Stored]:
    if not (folder / "config.json").is_file():
        raise _wrong(folder, "it has no config.json, so it is not a transformers checkpoint")
    if (folder / INDEX).is_file():
        return _indexed(folder)
    if not (folder / ONE_FILE).is_file():
        raise _without_safetensors(folder)
    return _header(folder / ONE_FILE)


def _without_safetensors(folder: Path) -> ConfigError:
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if not pickles:
        return _wrong(folder, f"it has neither {ONE_FILE} nor {INDEX}; model.weights=random uses only its shape")
    convert = "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(ANOTHER)"
    return _wrong(
        folder,
        f"its weights are {pickles[0]}, and only safetensors are read: convert them with transformers, {convert}",
    )


def _indexed(folder: Path) -> dict[str, Stored]:
    places: Any = _json((folder / INDEX).read_bytes(), folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise _wrong(folder, f"{INDEX} names no tensors")
    shards = sorted({str(name) for name in places.values()})
    if missing := [name for name in shards if not (folder / name).is_file()]:
        raise _wrong(folder, f"shard {missing[0]} is missing, which {INDEX} names{_and_more(missing)}")
    headers = {name: _header(folder / name) for name in shards}
    if absent := [name for name, shard in places.items() if name not in headers[shard]]:
        raise _wrong(
            folder, f"{INDEX} names {absent[0]} in {places[absent[0]]}, which has no such tensor{_and_more(absent)}"
        )
    return {name: headers[shard][name] for name, shard in places.items()}


def _header(path: Path) -> dict[str, Stored]:
    """Return the tensors of one file; raise ConfigError where its length is not what its header says."""
    if path.exists() and not path.is_file():
        raise _wrong(path.parent, f"{path.name} is not a regular file")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if length > LONGEST_HEADER_BYTES:
            raise _wrong(path.parent, f"{path.name} is no safetensors file")
        if LENGTH_BYTES + length > size:
            raise _wrong(
                path.parent,
                f"shard {path.name} is truncated: it has {size} bytes, and its header alone {LENGTH_BYTES + length}",
            )
        header = _json(file.read(length), path)
    base = LENGTH_BYTES + length
    tensors = {name: _stored(path, base, entry) for name, entry in header.items() if name != "__metadata__"}
    expected = max((stored.end for stored in tensors.values()), default=base)
    if size != expected:
        how = "truncated" if size < expected else "longer than it should be"
        raise _wrong(path.parent, f"shard {path.name} is {how}: it has {size} bytes, and its header says {expected}")
    return tensors


def _stored(path: Path, base: int, entry: Any) -> Stored:
    try:
        begin, end = entry["data_offsets"]
        return Stored(path, str(entry["dtype"]), tuple(entry["shape"]), base + begin, base + end)
    except (KeyError, TypeError, ValueError):
        raise _wrong(path.parent, f"{path.name} is no safetensors file") from None


def _json(text: bytes, path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(path.parent, f"{path.name} cannot be read: {error}") from None
    if not isinstance(loaded, dict):
        raise _wrong(path.parent, f"{path.name} does not map names")
    return loaded


def _and_more(names: list[str]) -> str:
    return f", and {len(names) - 1} more" if len(names) > 1 else ""


def _wrong(folder: Path, why: str) -> ConfigError:
    return ConfigError(f"model.path={folder}: {why}")
