"""A rank's imports, made shorter: nothing is collected meanwhile, and libraries that others import wherever they find them are out of sight.

DeepSpeed's autotuner takes mlflow, transformers takes scipy and scikit-learn for losses and decoding that no rank asks for.
"""

from __future__ import annotations

import gc
import sys

LEFT_OUT = ("mlflow", "scipy", "sklearn")


def begin_imports() -> None:
    """Hide what is left out, and collect no garbage."""
    gc.disable()
    for name in LEFT_OUT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def end_imports() -> None:
    """Let a user's own model or optimizer import what was left out; what is imported by now is never looked through for garbage."""
    for name in LEFT_OUT:
        if name in sys.modules and sys.modules[name] is None:
            del sys.modules[name]
    gc.freeze()
    gc.enable()
