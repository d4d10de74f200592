"""The files in which DeepSpeed keeps a rank's optimizer states: their bytes, the traffic to them, and their end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from torch import distributed

from llmexp.launchers.deepspeed.disk import swap_folder
from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.training_plan import TrainingPlan


class SwapFiles:
    """A rank's files below the run's own folder; there are none where `folder` is None."""

    def __init__(self, plan: TrainingPlan) -> None:
        """Remove what a killed driver has left; the repeat's folder is the rank's first argument."""
        self.folder = swap_folder(plan, Path(sys.argv[1]).parent) if plan.config.memory.optimizer_folder else None
        # DeepSpeed 0.19 puts them there (stage3.py, swap_tensor/optimizer_utils.py).
        self._own = (self.folder or Path()) / "zero_stage_3" / "optimizer" / f"rank{distributed.get_rank()}"
        self._before: Any = None
        self._traffic: WhatRan = {}
        self.remove()

    def in_config(self, native: Mapping[str, Any]) -> dict[str, Any]:
        """Return DeepSpeed's configuration with the run's folder."""
        if not self.folder:
            return dict(native)
        zero = native["zero_optimization"]
        offload = zero["offload_optimizer"] | {"nvme_path": str(self.folder)}
        return {**native, "zero_optimization": zero | {"offload_optimizer": offload}}

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the bytes of gradients, of the optimizer's states, and of the moments among them."""
        if not self.folder:
            return {}
        sizes = {path.name: path.stat().st_size for path in self._own.iterdir()}
        gradients = sum(size for name, size in sizes.items() if "_gradient_" in name)
        # Files of moments begin with the moment's name, others with the parameters' numbers.
        moments = sum(size for name, size in sizes.items() if not name[0].isdigit())
        return {"gradients": gradients, "optimizer": sum(sizes.values()) - gradients, "moments": moments}

    def end_step(self) -> None:
        """Note what has been read and written since the end of the step before."""
        if not self.folder:
            return
        now = psutil.Process().io_counters()
        if self._before is not None:
            self._traffic = {
                "disk_read_bytes": now.read_bytes - self._before.read_bytes,
                "disk_written_bytes": now.write_bytes - self._before.write_bytes,
            }
        self._before = now

    def traffic(self) -> WhatRan:
        """Return the bytes of the last step; empty where there are no files."""
        return self._traffic

    def remove(self) -> None:
        """Remove this rank's files; the run's folder goes with those of the last rank."""
        if not self.folder:
            return
        shutil.rmtree(self._own, ignore_errors=True)
        for folder in list(self._own.parents)[:3]:
            with suppress(OSError):
                folder.rmdir()
