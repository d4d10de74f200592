"""The checkpoint on the disk that all replicas start again from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from llmexp.launchers.torchft.replica import Replica


class CheckpointFile:
    """The newest whole checkpoint of a repeat, one file in its folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "checkpoint.pt"

    def save(self, step: int, replica: Replica) -> None:
        """Write the state after `step` steps, through to the disk; the older file stays until the new one is whole."""
        made = self._path.with_suffix(".part")
        with made.open("wb") as file:
            torch.save({"step": step, **replica.state()}, file)
            file.flush()
            os.fsync(file.fileno())
        made.rename(self._path)

    def load_into(self, replica: Replica, device: torch.device) -> int:
        """Let the replica go on from the file; return the steps that are in it, 0 where there is none yet."""
        if not self._path.exists():
            return 0
        found = torch.load(self._path, map_location=device, weights_only=True)
        replica.load(found)
        return int(found["step"])
