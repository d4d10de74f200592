"""What a sweep of the suite runs in: the scripted engine beside llmexp, an outputs folder, a mark by which its processes are known."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from chaos.broken_files import BELOW, ERROR_FILE
from chaos.clock import SHIFT_FILE
from chaos.power import FORCED_FILE

ROOT = Path(__file__).parents[1]
MARK = "CHAOS_MARK"
ENTRY_POINTS = "[llmexp.engines]\nscripted = chaos.engine:ENGINE\n[llmexp.conf]\nchaos = chaos.conf\n"
IN_EVERY_PROCESS = (
    "from chaos import broken_files, clock, power\nfor fault in (broken_files, clock, power):\n    fault.install()\n"
)
METADATA = "Metadata-Version: 2.1\nName: llmexp-chaos\nVersion: 1\n"


@dataclass
class Surroundings:
    """A scratch folder, with what is installed in it, the outputs of sweeps, and the variables of a cluster where they run on one."""

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
            self.forced_file.chmod(0o666)  # drivers of another user note there too
            (self.site / "sitecustomize.py").write_text(IN_EVERY_PROCESS)

    @property
    def site(self) -> Path:
        """A folder of packages, as pip makes them."""
        return self.scratch / "site"

    @property
    def error_file(self) -> Path:
        """While it is there, files below the outputs answer with the error whose number it holds."""
        return self.scratch / "errno"

    @property
    def shift_file(self) -> Path:
        """By so many seconds the clock of this sweep's processes is wrong."""
        return self.scratch / "shift_s"

    @property
    def forced_file(self) -> Path:
        """What they have forced to the disk."""
        return self.scratch / "forced"

    @property
    def environment(self) -> dict[str, str]:
        """For every process of a sweep."""
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
        """Living processes of these surroundings: all, or those of `python -m <module>` with an argument that starts so."""
        return [process for process in psutil.process_iter() if self._is_ours(process, module, word)]

    def _is_ours(self, process: psutil.Process, module: str, word: str) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.environ().get(MARK) != self.mark:
                return False
            line = process.cmdline()
        except psutil.Error:
            return False
        return not module or (line[1:3] == ["-m", module] and any(argument.startswith(word) for argument in line[3:]))

    def llmexp(self, *words: str) -> list[str]:
        """The command line of llmexp with these words."""
        return [sys.executable, "-m", "llmexp", *words]
