"""The names of DeepSpeed's configuration, read from the sources of the version that is installed: importing it would take torch, and seconds."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

# Where it names its sections and keys; among them are words that are no keys, which does no harm.
_FILES = ("constants.py", "*config*.py")
_WORD = re.compile(r"""["']([a-z][a-z0-9_]*)["']""")


@cache
def deepspeed_options() -> frozenset[str]:
    """All of them; empty where DeepSpeed is not installed here, as on a node that only plans."""
    spec = importlib.util.find_spec("deepspeed")
    if spec is None or spec.origin is None:
        return frozenset()
    root = Path(spec.origin).parent
    files = (path for pattern in _FILES for path in root.rglob(pattern))
    return frozenset(word for path in files for word in _WORD.findall(path.read_text(errors="replace")))
