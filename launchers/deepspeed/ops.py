"""DeepSpeed's compiled ops, which ranks load.

`python -m llmexp.launchers.deepspeed.ops <op>` builds one into TORCH_EXTENSIONS_DIR.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from llmexp.launchers.deepspeed import BESIDE_DISK_OP, DISK_OP, OP_LIBRARY_VARIABLE
from llmexp.record.installed import look, path_with_scripts

_BUILDERS = {"cpu_adam": "CPUAdamBuilder", "fused_adam": "FusedAdamBuilder", DISK_OP: "AsyncIOBuilder"}


def use_built_ops() -> None:
    """Hand DeepSpeed the op that the driver built; call this before deepspeed.init_distributed."""
    import deepspeed.ops
    from deepspeed.ops.op_builder.builder import OpBuilder

    # Only tensor-parallel inference uses shm_comm, and torch.distributed can do its work.
    # Yet each rank would compile it at the start.
    deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}
    library = os.environ.get(OP_LIBRARY_VARIABLE)
    if not library:
        return
    if Path(library).stem == DISK_OP:
        beside = Path(library).with_stem(BESIDE_DISK_OP)
        # The other one finds its symbols in this one.
        OpBuilder._loaded_ops[BESIDE_DISK_OP] = _load(beside)
        ctypes.CDLL(str(beside), mode=ctypes.RTLD_GLOBAL)
    OpBuilder._loaded_ops[Path(library).stem] = _load(Path(library))


def use_fp16() -> None:
    """Let DeepSpeed train in fp16 on every processor: it wants instructions for it (0.19.8), and torch does without."""
    from deepspeed.accelerator import get_accelerator

    if get_accelerator().device_name() == "cpu":
        get_accelerator().is_fp16_supported = lambda: True


def _load(library: Path) -> object:
    spec = importlib.util.spec_from_file_location(library.stem, library)
    if spec is None or spec.loader is None:
        raise ImportError(f"{library} is not an extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(op: str) -> None:
    # torch finds the compiler by CXX and ninja by PATH.
    os.environ |= {"CXX": look().compiler or "", "PATH": path_with_scripts()}
    from deepspeed.accelerator import get_accelerator

    builder = get_accelerator().create_op_builder(_BUILDERS[op])
    # `load` also builds the op that this one is linked against.
    (builder.load if op == DISK_OP else builder.jit_load)(verbose=True)


if __name__ == "__main__":
    _build(sys.argv[1])
