"""The disk of the sweeps' outputs, and its faults.

It is a small separate filesystem where this user may mount one; else limits on the processes stand in for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import subprocess
from pathlib import Path

import psutil

from chaos.surroundings import Surroundings

SIZE, INODES = "48m", 4096
FILLER, TAKEN = ".filler", ".taken"
CHUNK_BYTES = 2**16


class Disk:
    """The filesystem of a folder, as a context manager.

    `is_real` says whether it is a filesystem that really fills up and turns read-only.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.is_real = path, False

    def __enter__(self) -> Disk:
        self.path.mkdir(parents=True, exist_ok=True)
        self.is_real = os.geteuid() == 0 and _mount(
            "-t", "tmpfs", "-o", f"size={SIZE},nr_inodes={INODES}", "llmexp-chaos", str(self.path)
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_real:
            subprocess.run(["umount", "--lazy", str(self.path)], check=False)

    def fill(self, surroundings: Surroundings) -> None:
        """Leave no byte free.

        Without a filesystem of our own, no process of the sweep may make a file longer.
        """
        if not self.is_real:
            _limit_files(surroundings, 0)
            return
        with contextlib.suppress(OSError), (self.path / FILLER).open("ab", buffering=0) as file:
            while True:
                file.write(bytes(CHUNK_BYTES))
        with contextlib.suppress(OSError), (self.path / FILLER).open("ab", buffering=0) as file:
            while True:
                file.write(b"0")

    def free(self, surroundings: Surroundings) -> None:
        """Undo `fill`."""
        if self.is_real:
            (self.path / FILLER).unlink(missing_ok=True)
        else:
            _limit_files(surroundings, resource.RLIM_INFINITY)

    def take_inodes(self, surroundings: Surroundings) -> None:
        """Allow no new file.

        Without a filesystem of our own, every path answers that there is no space.
        """
        if not self.is_real:
            surroundings.error_file.write_text(str(errno.ENOSPC))
            return
        with contextlib.suppress(OSError):
            (self.path / TAKEN).mkdir()
            for number in range(INODES):
                (self.path / TAKEN / str(number)).touch()

    def give_inodes(self, surroundings: Surroundings) -> None:
        """Undo `take_inodes`."""
        shutil.rmtree(self.path / TAKEN, ignore_errors=True)
        surroundings.error_file.unlink(missing_ok=True)

    def forbid_writing(self, surroundings: Surroundings) -> None:
        """Mount the folder again over itself, read-only.

        Without the right to do so, every path answers with the error of a read-only filesystem.
        """
        if self.is_real and _mount("--bind", str(self.path), str(self.path)):
            _mount("-o", "remount,bind,ro", str(self.path))
        else:
            surroundings.error_file.write_text(str(errno.EROFS))

    def allow_writing(self, surroundings: Surroundings) -> None:
        """Undo `forbid_writing`."""
        if surroundings.error_file.exists():
            surroundings.error_file.unlink()
        else:
            subprocess.run(["umount", "--lazy", str(self.path)], check=False)


def _mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True).returncode == 0


def _limit_files(surroundings: Surroundings, soft: int) -> None:
    for process in surroundings.processes():
        with contextlib.suppress(psutil.Error, OSError):
            _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))
