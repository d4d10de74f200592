"""Tell which jobs belong to a sweep, so that only those are cancelled or released.

SLURM's own record decides, because a folder may be a copy, or belong to another user.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from llmexp.slurm.jobs import Submitted, slurm_folder
from llmexp.slurm.queue import scripts_of


def own(runs: Sequence[Submitted]) -> list[Submitted]:
    """Return the runs whose jobs were submitted, by SLURM's record, with a script below their sweep's own folder.

    Raises SlurmError where SLURM does not answer.
    """
    scripts = scripts_of(run.job for run in runs)
    return [run for run in runs if _is_from(scripts.get(run.job.number, ""), run)]


def _is_from(script: str, run: Submitted) -> bool:
    """Say whether a submission of the run's sweep wrote that script.

    Paths are resolved, so that links and names with folders in them cannot lead to another sweep's jobs.
    """
    folder = Path(os.path.realpath(Path(script).parent))
    return (folder.name, folder.parent) == (run.job.name, slurm_folder(run.folder.path.parent.resolve()))
