"""The library of the pretended device: it is compiled with torch, and loaded before torch."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "cuda.cpp"


def compile_with(compiler: str, library: Path) -> None:
    """Take some seconds; torch brings the headers."""
    from torch.utils.cpp_extension import include_paths

    headers = [f"-I{path}" for path in include_paths()]
    subprocess.run([compiler, "-shared", "-fPIC", "-std=c++20", *headers, str(SOURCE), "-o", str(library)], check=True)


def load(library: Path) -> None:
    """Register the device; torch asks only once, when it is imported."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    for name in ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so", "libtorch.so"):
        ctypes.CDLL(str(Path(found.origin).parent / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
