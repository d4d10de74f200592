"""The git checkouts that a run depends on: commit, remote, and the uncommitted changes, which are kept as a file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from llmexp.record.git import changes, git, is_dirty
from llmexp.record.redact import redact
from llmexp.record.writing import write_atomically

# A larger diff is a copy of something, not a change that a person reads.
LARGEST_DIFF_BYTES = 1_000_000


# This variable names the folder with what `checkouts` found when a job was submitted: people may have changed the
# sources before the job runs.
SUBMITTED = "LLMEXP_SUBMITTED_CHECKOUTS"
_KEPT = "checkouts.json"


def checkouts(into: Path | None) -> dict[str, dict[str, Any] | None]:
    """Describe llmexp's own checkout and the working directory's, and write their changes `into` a folder.

    A checkout that does not exist is None.
    """
    submitted = os.environ.get(SUBMITTED)
    if submitted:
        return _as_submitted(Path(submitted), into)
    found = {"llmexp": _own_checkout(), "working_directory": Path.cwd()}
    return {name: _describe(name, folder, into) if folder else None for name, folder in found.items()}


def keep_checkouts(folder: Path) -> None:
    """Save what `checkouts` finds now, with the changes, in a folder for jobs that run later."""
    write_atomically(folder / _KEPT, json.dumps(checkouts(folder), indent=2))


def _as_submitted(kept: Path, into: Path | None) -> dict[str, dict[str, Any] | None]:
    found: dict[str, dict[str, Any] | None] = json.loads((kept / _KEPT).read_text())
    if into:
        for diff in kept.glob("*.diff"):
            shutil.copy(diff, into / diff.name)
    return found


def _own_checkout() -> Path | None:
    """Return the folder of these sources; None where llmexp is installed, even inside another project's checkout."""
    source = Path(__file__)
    return source.parent if git(source.parent, "ls-files", "--error-unmatch", source.name) else None


def _describe(name: str, folder: Path, into: Path | None) -> dict[str, Any] | None:
    commit = git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    remote = git(folder, "remote", "get-url", "origin")
    dirty = is_dirty(folder)
    found = {"commit": commit.strip(), "dirty": dirty, "remote": redact(remote.strip()) if remote else None}
    return found | ({"diff": _keep_diff(folder, into / f"git.{name}.diff")} if dirty and into else {})


def _keep_diff(folder: Path, path: Path) -> dict[str, str] | None:
    """Write the diff of tracked files from HEAD, with secrets hidden, and return the file's name and digest.

    Return None where the diff cannot be kept.
    """
    diff = changes(folder)
    if diff is None:
        return None
    text = _capped(redact(diff))
    try:
        write_atomically(path, text)
    except OSError:
        return None
    return {"file": path.name, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _capped(diff: str) -> str:
    """Cut a diff to whole lines within the largest size, and add a note of the cut.

    The note has the digest of the whole diff, so that changes in the part that was cut off show too.
    """
    whole = diff.encode()
    if len(whole) <= LARGEST_DIFF_BYTES:
        return diff
    kept = whole[:LARGEST_DIFF_BYTES].rpartition(b"\n")[0].decode(errors="replace")
    return (
        f"{kept}\n# cut off: the first {len(kept.encode())} of {len(whole)} bytes, "
        f"whose SHA-256 is {hashlib.sha256(whole).hexdigest()}\n"
    )
