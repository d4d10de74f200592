"""Measure one planned run in a SLURM job on its node: `python -m llmexp.sweep.allocated SWEEP NAME`.

The exit code tells SLURM too whether the run has an answer.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from llmexp.errors import LlmexpError
from llmexp.launch.interrupt import ignore_signals
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.slurm.jobs import run_of
from llmexp.sweep.measuring import joined, measure, record


def main(sweep: Path, name: str) -> None:
    """Measure the run that this job of the submission `name` is for."""
    # SIGUSR2 is SLURM's warning; while the run lasts, the run handles it and SIGTERM itself.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    try:
        folder = run_of(sweep, name, int(task) if task else None)
        plan = RunPlan.read(folder.plan_path) if folder else None
    except LlmexpError as error:
        sys.exit(f"llmexp: {error}")
    if folder is None or plan is None:
        sys.exit("llmexp: this job does nothing: its run was submitted again because this job was not recorded")
    run_allocated(plan, folder)


def run_allocated(plan: RunPlan, folder: RunFolder) -> None:
    """Measure the run planned in this folder, then exit with 0 where it has an answer, else 1.

    Its result is written by then.
    """
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


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
