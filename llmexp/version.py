"""llmexp's version, in a module of its own that any other may import."""

from __future__ import annotations

__version__ = "0.1.0"
