"""Whose a job is: what is ended or released is of the sweep that names it, by SLURM's own word; a folder may be a copy, or somebody else's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from llmexp.slurm.jobs import Submitted, slurm_folder
from llmexp.slurm.queue import scripts_of


def own(runs: Sequence[Submitted]) -> list[Submitted]:
    """The runs whose jobs SLURM has from a script below their sweep's own folder; raises SlurmError where it does not answer."""
    scripts = scripts_of(run.job for run in runs)
    return [run for run in runs if _is_from(scripts.get(run.job.number, ""), run)]


def _is_from(script: str, run: Submitted) -> bool:
    """Whether a submission of the run's sweep left that script; links and names with folders in them lead to no other sweep's."""
    folder = Path(os.path.realpath(Path(script).parent))
    return (folder.name, folder.parent) == (run.job.name, slurm_folder(run.folder.path.parent.resolve()))
