"""The environment of the suite's sweeps.

It has the scripted engine beside llmexp, an outputs folder, and a mark that identifies its processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from chaos.broken_files import BELOW, ERROR_FILE
from chaos.clock import SHIFT_FILE
from chaos.power import FORCED_FILE
from llmexp.machine.standstill import StandstillWatch

ROOT = Path(__file__).parents[1]
MARK = "CHAOS_MARK"
# How long a process may stand still before it counts as one that does not end.
IDLE_S = 120.0
LEAVES_WITHIN_S, LOOK_EVERY_S = 60.0, 0.2
ENTRY_POINTS = "[llmexp.engines]\nscripted = chaos.engine:ENGINE\n[llmexp.conf]\nchaos = chaos.conf\n"
IN_EVERY_PROCESS = (
    "from chaos import broken_files, clock, power\nfor fault in (broken_files, clock, power):\n    fault.install()\n"
)
METADATA = "Metadata-Version: 2.1\nName: llmexp-chaos\nVersion: 1\n"


@dataclass
class Surroundings:
    """A scratch folder, the packages installed in it, and the outputs of sweeps.

    `cluster` holds the variables of a cluster where the sweeps run on one.
    """

    scratch: Path
    outputs: Path
    cluster: Mapping[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        info = self.site / "llmexp_chaos-1.dist-info"
        if not info.exists():
            info.mkdir(parents=True)
            (info / "METADATA").write_text(METADATA)
            (info / "entry_points.txt").write_text(ENTRY_POINTS)
            self.forced_file.touch()
            self.forced_file.chmod(0o666)  # drivers of another user write to it too
            (self.site / "sitecustomize.py").write_text(IN_EVERY_PROCESS)

    @property
    def site(self) -> Path:
        """A folder of packages, in pip's layout."""
        return self.scratch / "site"

    @property
    def error_file(self) -> Path:
        """A file with an error number; while it exists, files below the outputs answer with that error."""
        return self.scratch / "errno"

    @property
    def shift_file(self) -> Path:
        """A file with the number of seconds by which the clock of this sweep's processes is wrong."""
        return self.scratch / "shift_s"

    @property
    def forced_file(self) -> Path:
        """A file that lists what the processes have forced to the disk."""
        return self.scratch / "forced"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of every process of a sweep."""
        kept = {
            name: value
            for name, value in {**os.environ, **self.cluster}.items()
            if not name.startswith(("MLFLOW", "PYTEST"))
        }
        path = os.pathsep.join([str(self.site), str(ROOT)])
        told = {
            ERROR_FILE: str(self.error_file),
            BELOW: str(self.outputs),
            SHIFT_FILE: str(self.shift_file),
            FORCED_FILE: str(self.forced_file),
        }
        return (
            kept
            | told
            | {
                MARK: self.mark,
                "PYTHONPATH": path,
                "PYTHONUNBUFFERED": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "HOME": str(self.scratch),
            }
        )

    def processes(self, module: str = "", word: str = "") -> list[psutil.Process]:
        """Return the living processes of these surroundings.

        They are all, or those of `python -m <module>` with an argument that begins with `word`.
        """
        return [process for process in psutil.process_iter() if self._is_ours(process, module, word)]

    def _is_ours(self, process: psutil.Process, module: str, word: str) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.environ().get(MARK) != self.mark:
                return False
            line = process.cmdline()
        except psutil.Error:
            return False
        return not module or (line[1:3] == ["-m", module] and any(argument.startswith(word) for argument in line[3:]))

    def outliving(self) -> list[psutil.Process]:
        """Wait for all processes to end, and return those that are left when none has ended for a minute."""
        left, deadline_s = self.processes(), time.monotonic() + LEAVES_WITHIN_S
        while left and time.monotonic() < deadline_s:
            time.sleep(0.1)
            still = self.processes()
            if len(still) < len(left):
                deadline_s = time.monotonic() + LEAVES_WITHIN_S
            left = still
        return left

    def llmexp(self, *words: str) -> list[str]:
        """Return the command line of llmexp with these words."""
        return [sys.executable, "-m", "llmexp", *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Carry out a command of llmexp; raises subprocess.TimeoutExpired where it stands still."""
        pipe, command = subprocess.PIPE, self.llmexp(*words)
        with subprocess.Popen(command, env=self.environment, stdout=pipe, stderr=pipe, text=True) as process:
            watch = StandstillWatch(process.pid, IDLE_S)
            while True:
                try:
                    out, err = process.communicate(timeout=LOOK_EVERY_S)
                    return subprocess.CompletedProcess(command, process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    if watch.stands_still():
                        process.kill()
                        raise
