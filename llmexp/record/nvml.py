"""NVIDIA's management library, for one GPU."""

from __future__ import annotations

from typing import Any


def board(uuid: str) -> tuple[Any, Any] | None:
    """The library, initialised, and its handle of a GPU; None where the library, its driver or the GPU is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return None
