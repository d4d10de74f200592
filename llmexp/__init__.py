"""llmexp measures which configuration trains, fine-tunes or serves a language model best on this hardware."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmexp.version import __version__

if TYPE_CHECKING:
    from llmexp.cli.face import advise, plan, run
    from llmexp.cli.watch import watch
    from llmexp.frame.columns import columns
    from llmexp.frame.load import load

__all__ = ["__version__", "advise", "columns", "load", "plan", "run", "watch"]

# Ranks import this package too, and need none of what these functions import.
_PLACES = {
    "advise": "llmexp.cli.face",
    "columns": "llmexp.frame.columns",
    "load": "llmexp.frame.load",
    "plan": "llmexp.cli.face",
    "run": "llmexp.cli.face",
    "watch": "llmexp.cli.watch",
}


def __getattr__(name: str) -> Any:
    """Return a function of the public face, which is imported when it is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module 'llmexp' has no attribute '{name}'")
    return getattr(import_module(_PLACES[name]), name)
