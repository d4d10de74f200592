from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of

ROOT = Path(__file__).parents[2]
NEED_A_PATH_OR_GPU = ("hf", "gpu")
FILES = [
    path
    for path in (ROOT / "conf").glob("*/*.yaml")
    if path.parent.name != "experiment" and path.stem not in NEED_A_PATH_OR_GPU
]
VALUES = {
    "runtime=venv": "runtime.python=/x/bin/python",
    "runtime=apptainer": "runtime.image=a.sif",
    "runtime=docker": "runtime.image=an-image",
    "engine=script": 'engine.options.command="-m package.train"',
}
OF_MICRO = "task=micro"
OPTIONS = sorted(f"{path.parent.name}={path.stem}" for path in FILES)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes_into_a_plan(option):
    words = [option, *filter(None, [VALUES.get(option, OF_MICRO if "micro" in option else None)])]
    words = list(dict.fromkeys(words))
    (job,) = jobs_of(run_parser().parse_intermixed_args(words))
    assert shlex.split(job.plan.rerun_command) == ["python", "-m", "llmexp", *words]
