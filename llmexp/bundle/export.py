"""Writing of a bundle: the records of runs, without secrets, and where it is asked for without names."""

from __future__ import annotations

import getpass
import gzip
import io
import json
import re
import socket
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llmexp.bundle.anonymous import Anonymizer
from llmexp.bundle.archive import SUFFIXES
from llmexp.errors import ConfigError, RecordError
from llmexp.record.folder import PLAN, RESULT, RunFolder
from llmexp.record.reading import LONGEST_LINES_BYTES, OddFileError, parsed, read_text
from llmexp.record.redact import redact, redact_all
from llmexp.record.writing import temporary_for

_RECORDS = re.compile(r"[\w.-]+\.jsonl?")
_LOGS = re.compile(r"(log|nccl)\.[\w.-]+")
_DIFF = re.compile(r"git\.[\w.-]+\.diff")
_TRACE = re.compile(r"[\w.-]+\.json(\.gz)?")


@dataclass(frozen=True)
class Contents:
    """What a bundle holds besides records, and whether names are replaced in it."""

    logs: bool = False
    traces: bool = False
    anonymous: bool = False


def export(runs: Sequence[RunFolder], into: Path, contents: Contents) -> int:
    """Write a bundle of the runs and return the number of its files.

    Raises ConfigError where its name is no bundle's or is taken, or where a name to be replaced is part of a result.
    """
    if not into.name.endswith(SUFFIXES):
        raise ConfigError(f"--into {into}: a bundle's name ends in {', '.join(SUFFIXES)}")
    if into.exists():
        raise ConfigError(f"--into {into}: it exists already")
    if not into.parent.is_dir():
        raise ConfigError(f"--into {into}: there is no folder {into.parent}")
    names = _names(runs) if contents.anonymous else None
    temporary, count = temporary_for(into), 0
    try:
        with _writer(temporary, zipped=into.name.endswith(".zip")) as add:
            for name, content in _files(runs, contents, names):
                add(name, content)
                count += 1
        temporary.replace(into)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _names(runs: Iterable[RunFolder]) -> Anonymizer:
    """Return what knows this machine's names and those that the records state."""
    host = socket.gethostname()
    names = Anonymizer([("host", socket.getfqdn()), ("host", host), ("user", _user()), ("path", str(Path.home()))])
    for folder in (str(Path.cwd()), sys.prefix, sys.base_prefix):
        if not folder.startswith("/usr"):
            names.learn("path", folder)
    for run in runs:
        for path in [run.events_path, run.result_path, *run.path.glob("repeat.*/process.*.json")]:
            try:
                for line in read_text(path).splitlines() if path.name != RESULT else [read_text(path)]:
                    names.learn_from(parsed(line))
            except (OSError, ValueError):
                continue
    return names


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _files(runs: Iterable[RunFolder], contents: Contents, names: Anonymizer | None) -> Iterator[tuple[str, bytes]]:
    """Yield each file's name in the bundle, <sweep>/<run>/…, and its content."""
    for run in runs:
        folder = run.path.resolve()
        for path in sorted(_chosen(folder, contents)):
            name = f"{folder.parent.name}/{folder.name}/{path.relative_to(folder).as_posix()}"
            yield names.text(name) if names else name, _content(path, names)


def _chosen(folder: Path, contents: Contents) -> Iterator[Path]:
    for path in [*folder.glob("*"), *folder.glob("repeat.*/*"), *folder.glob("repeat.*/trace/*")]:
        if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
            continue
        if path.parent.name == "trace":
            chosen = contents.traces and bool(_TRACE.fullmatch(path.name))
        else:
            chosen = bool(_RECORDS.fullmatch(path.name)) and not path.name.startswith(
                ("process.", ".")
            )  # whose processes they were says nothing elsewhere
            chosen |= contents.logs and bool(_LOGS.fullmatch(path.name))
            # A diff is of somebody's sources, in which any name can stand.
            chosen |= not contents.anonymous and bool(_DIFF.fullmatch(path.name))
        if chosen:
            yield path


def _content(path: Path, names: Anonymizer | None) -> bytes:
    """Return a file without secrets, and with made-up names where `names` has them; raises RecordError."""
    try:
        if path.suffix == ".gz":
            text = gzip.decompress(path.read_bytes()).decode(errors="replace")
            return gzip.compress(_cleaned(path, text, names).encode(), mtime=0)
        return _cleaned(path, read_text(path, LONGEST_LINES_BYTES), names).encode()
    except (OSError, EOFError, UnicodeDecodeError, OddFileError) as error:
        raise RecordError(f"{path} cannot be exported: {error}") from None


def _cleaned(path: Path, text: str, names: Anonymizer | None) -> str:
    if path.suffix == ".jsonl":
        return "".join(f"{_record(line, names)}\n" for line in text.splitlines())
    if path.suffix in (".json", ".gz"):
        cleaned = _record(text, names, indent=None if path.suffix == ".gz" else 2)
        if names and path.name in (PLAN, RESULT):
            _check_kept(path, text, cleaned)
        return f"{cleaned}\n"
    return names.text(redact(text)) if names else redact(text)


def _record(text: str, names: Anonymizer | None, indent: int | None = None) -> str:
    """Return JSON with its texts cleaned; a text that is no JSON, such as a line that was cut off, as a text."""
    try:
        values = redact_all(parsed(text))
    except ValueError:
        return names.text(redact(text)) if names else redact(text)
    return json.dumps(names.record(values) if names else values, indent=indent)


def _check_kept(path: Path, before: str, after: str) -> None:
    """Raise ConfigError where a name that was replaced is also the name of what was measured."""
    try:
        old, new = parsed(before), parsed(after)
    except ValueError:
        return
    for key in ("id", "status", "task", "engine", "model", "method", "hardware", "metrics"):
        if isinstance(old, dict) and old.get(key) != new.get(key):
            raise ConfigError(
                f"{path}: a name of a machine or person is also its {key} {old[key]!r}, and would be replaced there: "
                "export it without --anonymous"
            )


@contextmanager
def _writer(path: Path, zipped: bool) -> Iterator[Callable[[str, bytes], None]]:
    """Give what adds a file to a new archive; its members have no owner, and no time of this machine."""
    if zipped:
        with zipfile.ZipFile(path, "x") as archive:

            def add(name: str, content: bytes) -> None:
                info = zipfile.ZipInfo(name)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
                archive.writestr(info, content)

            yield add
        return
    with tarfile.open(path, "x:gz") as stream:

        def append(name: str, content: bytes) -> None:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            stream.addfile(member, io.BytesIO(content))

        yield append
