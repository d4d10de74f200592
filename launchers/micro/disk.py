"""Files past the page cache."""

from __future__ import annotations

import mmap
import os
from functools import partial

from llmexp.launchers.micro.case import Case, CasePlace
from llmexp.micro.families.base import MicroPoint

# Direct input and output want addresses and sizes that are multiples of a block.
BLOCK_BYTES = 4096


def disk(point: MicroPoint, place: CasePlace) -> Case:
    """Write or read a file of random bytes past the page cache; raises OSError where the filesystem cannot."""
    size = -(-point.sizes["bytes"] // BLOCK_BYTES) * BLOCK_BYTES
    path = place.folder / f"micro.{place.rank}.tmp"
    memory = mmap.mmap(-1, size)  # its address is a multiple of a page
    memory.write(os.urandom(min(size, 2**20)) * -(-size // 2**20) if size >= 2**20 else os.urandom(size))
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    # Nobody else needs the file, and a rank that is killed leaves nothing behind.
    path.unlink()
    _write(file, memory)

    def wrong() -> str:
        found = mmap.mmap(-1, size)
        _read(file, found)
        return "" if found[:] == memory[:] else "the file does not hold the bytes that were written"

    return Case([partial(_write if point.kind == "write" else _read, file, memory)], wrong, "O_DIRECT")


def _write(file: int, memory: mmap.mmap) -> None:
    if os.pwritev(file, [memory], 0) != len(memory):
        raise OSError("only part of the file was written")
    os.fdatasync(file)


def _read(file: int, memory: mmap.mmap) -> None:
    if os.preadv(file, [memory], 0) != len(memory):
        raise OSError("only part of the file was read")
