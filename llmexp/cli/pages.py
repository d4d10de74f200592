"""Where `llmexp report` leaves a page, and how it is opened."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from tempfile import mkdtemp

from llmexp.errors import ConfigError, RecordError
from llmexp.record.writing import write_atomically


def write_page(text: str, what: str, path: Path | None, shown: bool) -> None:
    """Write the page, say where and what it holds, and show it; without a path it is a passing one.

    Raises ConfigError for a folder, and RecordError where the page cannot be written.
    """
    path = path or Path(mkdtemp(prefix="llmexp-")) / "report.html"
    check_page(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error}") from None
    print(f"{path}: {what}, {len(text.encode()) / 1e3:,.0f} kB")
    if shown and not webbrowser.open(path.resolve().as_uri()):
        print("no browser found here: open the file in one")


def check_page(path: Path) -> None:
    """Raise ConfigError for a folder."""
    if path.is_dir():
        raise ConfigError(f"--html {path}: is a folder; name a file in it, such as {path / 'report.html'}")
