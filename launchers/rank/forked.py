"""A rank that is forked from a process which has imported for it: engine.launcher=fork."""

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
    """Be a rank of the repeat in `folder`, as a fresh interpreter of `python -m <worker> <folder>` would be; never returns."""
    import torch

    # Read when OpenMP was loaded, in the process that this one was forked from, whose threads did not come along.
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    module = importlib.import_module(worker)
    sys.argv = [worker, folder]
    module.run_rank(module.join, module.build)
