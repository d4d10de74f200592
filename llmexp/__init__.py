"""llmexp measures which configuration trains, fine-tunes or serves a language model best on this hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmexp.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

__all__ = ["__version__", "columns", "load"]


def load(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], level: str = "runs") -> Any:
    """Return runs as a pandas.DataFrame, one row a run; `level` is runs, repeats, steps, points, requests or calls.

    `path` is a run's folder, a sweep's, one that holds them, a bundle of `llmexp export`, or a list of these. Units are
    in the columns' names; `attrs` says what columns mean and which runs could not be read. Raises
    llmexp.errors.ConfigError where there are no runs.
    """
    from llmexp.frame.load import load

    return load(path, level)


def columns() -> dict[str, dict[str, str]]:
    """Return the unit and the description of each column that `load` can have, by its name."""
    from llmexp.frame.columns import columns

    return columns()
