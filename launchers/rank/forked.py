"""A rank forked from a process that has done the imports, for engine.launcher=fork."""

from __future__ import annotations

import importlib
import os
import sys

from llmexp.launchers.rank.starting import begin_imports, end_imports


def prepare(worker: str) -> None:
    """Import the engine's worker, before any rank is forked."""
    begin_imports()
    importlib.import_module(worker)
    end_imports()


def run(worker: str, folder: str) -> None:
    """Be a rank of the repeat in `folder`, as if started by `python -m <worker> <folder>`; never return."""
    import torch

    # OpenMP read this variable when the parent process loaded it, and the parent's threads were not copied.
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    module = importlib.import_module(worker)
    sys.argv = [worker, folder]
    module.run_rank(module.join, module.build)
