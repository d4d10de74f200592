"""Shortens a rank's imports: garbage collection is off, and libraries that no rank needs are hidden.

Others import them wherever they find them: DeepSpeed's autotuner imports mlflow, transformers imports scipy and
scikit-learn for losses and decoding that no rank uses, and torchao, which only precision.linears needs.
"""

from __future__ import annotations

import gc
import sys

LEFT_OUT = ("mlflow", "scipy", "sklearn", "torchao")


def begin_imports() -> None:
    """Hide the libraries of LEFT_OUT, and turn garbage collection off."""
    gc.disable()
    for name in LEFT_OUT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def end_imports() -> None:
    """Let a user's own model or optimizer import what was hidden, and turn garbage collection on.

    The collector never searches what has been imported by now.
    """
    for name in LEFT_OUT:
        if name in sys.modules and sys.modules[name] is None:
            del sys.modules[name]
    gc.freeze()
    gc.enable()
