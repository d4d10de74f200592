"""The names of DeepSpeed's options, read from the installed sources: an import would need torch and take seconds."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

# These files name the sections and keys; they have other words too, which do no harm.
_FILES = ("constants.py", "*config*.py")
_WORD = re.compile(r"""["']([a-z][a-z0-9_]*)["']""")


@cache
def deepspeed_options() -> frozenset[str]:
    """Return all names; the set is empty where DeepSpeed is not installed, as on a node that only plans."""
    spec = importlib.util.find_spec("deepspeed")
    if spec is None or spec.origin is None:
        return frozenset()
    root = Path(spec.origin).parent
    files = (path for pattern in _FILES for path in root.rglob(pattern))
    return frozenset(word for path in files for word in _WORD.findall(path.read_text(errors="replace")))
