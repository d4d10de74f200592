"""What a SLURM job runs on its node: one planned run, and an exit code that SLURM understands too."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from llmexp.cli.sweep import joined, measure, record
from llmexp.errors import LlmexpError
from llmexp.launch.interrupt import ignore_signals
from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder


def run_allocated(path: str) -> None:
    """Measure the run that was planned in this folder and leave with 0 where it has an answer, else 1: its result is written by then."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # submitit would ignore it; the run takes it itself, and the next one while it lasts
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    folder = RunFolder(Path(path))
    plan = RunPlan.read(folder.plan_path)
    try:
        if joined(plan):
            sys.exit(0)
        measure(plan, folder)
    except LlmexpError as error:
        sys.exit(f"llmexp: {error}")
    except KeyboardInterrupt:
        ignore_signals()
        record(plan, folder)
    result = folder.result()
    sys.exit(0 if result and result.status.is_answer else 1)
