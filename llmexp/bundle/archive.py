"""Unpacking of a bundle that anybody may have made: its members are written as plain files, and nothing of it is run.

It is unpacked into a folder of this process's own, which is removed at its end: no other user could have put anything
there, nothing goes stale, and nothing stays on the disk.
"""

from __future__ import annotations

import atexit
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Self

from llmexp.errors import ConfigError
from llmexp.record.reading import LONGEST_LINES_BYTES, plain

SUFFIXES = (".zip", ".tar.gz", ".tgz")
MOST_MEMBERS = 100_000
LARGEST_BYTES = 2**34
"""The bytes of all members together; one member may have LONGEST_LINES_BYTES, as the longest record that is read."""
DEEPEST = 8
_CHUNK_BYTES = LONGEST_HEAD_BYTES = 2**20
_OF_HEADS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


@dataclass(frozen=True)
class Member:
    """One member: its name, its stated size in bytes, its opened content (None of a folder), and what it is if odd."""

    name: str
    size: int
    content: IO[bytes] | None
    odd: str = ""


def is_bundle(path: Path) -> bool:
    """Tell whether a path is a file with a bundle's suffix."""
    return path.name.endswith(SUFFIXES) and path.is_file()


def unpacked(path: Path) -> Path:
    """Return the folder with the bundle's content; raises ConfigError that names the member which is refused."""
    status = path.stat()
    return _unpacked(path.resolve(), status.st_mtime_ns, status.st_size)


@cache
def _unpacked(path: Path, changed_ns: int, size: int) -> Path:
    folder = TemporaryDirectory(prefix="llmexp-bundle-")
    atexit.register(folder.cleanup)
    unpack(path, Path(folder.name))
    return Path(folder.name)


def unpack(path: Path, into: Path) -> None:
    """Write a bundle's members below an empty folder; raises ConfigError for one that no export makes."""
    left_bytes, seen = LARGEST_BYTES, set[str]()
    try:
        with _members(path) as members:
            for member in members:
                wrong = _wrong(member, seen, left_bytes)
                if wrong:
                    raise _refused(path, member.name, wrong)
                seen.add(member.name.rstrip("/"))
                left_bytes -= _write(path, member, into / member.name)
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        RuntimeError,
        ValueError,
        OSError,
    ) as error:
        raise ConfigError(plain(f"{path} is not a readable bundle: {error or type(error).__name__}")) from None


def _refused(path: Path, name: str, wrong: str) -> ConfigError:
    shown = name if len(name) <= 200 else f"{name[:200]}…"
    return ConfigError(plain(f"{path} is refused: its member {shown!r} {wrong}"))


def _wrong(member: Member, seen: set[str], left_bytes: int) -> str:
    """Say why a member is not written; empty where it is."""
    name, parts = member.name, PurePosixPath(member.name).parts
    reasons = {
        "has an absolute name": name.startswith("/") or name[1:2] == ":",
        "has a name with ..": ".." in parts,
        "has a name with characters that names of records lack": not name.isprintable() or "\\" in name or not parts,
        f"lies deeper than {DEEPEST} folders": len(parts) > DEEPEST,
        f"is {member.odd}": bool(member.odd),
        "is there twice": name.rstrip("/") in seen,
        f"is one of more than {MOST_MEMBERS}": len(seen) >= MOST_MEMBERS,
        f"has {member.size} bytes, more than {LONGEST_LINES_BYTES}": member.size > LONGEST_LINES_BYTES,
        f"makes the bundle larger than {LARGEST_BYTES} bytes": member.size > left_bytes,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _write(path: Path, member: Member, target: Path) -> int:
    """Write one member, not executable, and return its size in bytes, of which it may not have more than it states."""
    if member.content is None:
        target.mkdir(parents=True, exist_ok=True)
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with member.content, open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while chunk := member.content.read(_CHUNK_BYTES):
            written += len(chunk)
            if written > member.size:
                raise _refused(path, member.name, f"has more than the {member.size} bytes that it states")
            file.write(chunk)
    return written


@contextmanager
def _members(path: Path) -> Iterator[Iterator[Member]]:
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            yield (_of_zip(archive, info) for info in archive.infolist())
    else:
        # As a stream, so that of a member which is refused no more is read than its head.
        with tarfile.open(path, "r|gz", tarinfo=_Head) as stream:
            yield (_of_tar(stream, info) for info in stream)


class _Head(tarfile.TarInfo):
    """A head whose long name, or whose table of a pax archive, is no longer than any that an export makes.

    tarfile reads these whole before it says what they are of.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Take a block of 512 bytes; raises ReadError for a head that is too long."""
        found = super().frombuf(buf, encoding, errors)
        if found.type in _OF_HEADS and found.size > LONGEST_HEAD_BYTES:
            raise tarfile.ReadError(f"the head of a member has {found.size} bytes")
        return found


def _of_zip(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    kind = stat.S_IFMT(info.external_attr >> 16)
    odd = "" if kind in (0, stat.S_IFREG, stat.S_IFDIR) else "a link" if kind == stat.S_IFLNK else "no regular file"
    if info.flag_bits & 1:
        odd = "encrypted"
    content = None if info.is_dir() or odd or info.file_size > LONGEST_LINES_BYTES else archive.open(info)
    return Member(info.filename, info.file_size, content, odd)


def _of_tar(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    if info.issym() or info.islnk():
        return Member(info.name, info.size, None, f"a link to {info.linkname[:200]!r}")
    if not (info.isdir() or info.isreg()) or info.issparse():
        return Member(info.name, info.size, None, "no regular file")
    return Member(info.name, info.size, archive.extractfile(info) if info.isreg() else None)
