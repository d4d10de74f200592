from __future__ import annotations

import shlex
from importlib import import_module
from pathlib import Path

import pytest

from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.registry import ENGINES

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
    "engine=command": "engine.options.command='serve --port {port}'",
    "engine=script": 'engine.options.command="-m package.train"',
}
OF_A_TASK = ("micro", "serve", "compress")
# A name on a hub, of which nothing is looked up before the run.
TRAINED = "model=organization/name"
OPTIONS = sorted(f"{path.parent.name}={path.stem}" for path in FILES)


def task_of(option: str) -> str | None:
    """The task that an option needs, where it is not the default one."""
    group, _, name = option.partition("=")
    own = set(OF_A_TASK) & {group, name}
    tasks = import_module(ENGINES[name].partition(":")[0]).ENGINE.tasks if group == "engine" else tuple(own)
    return f"task={tasks[0]}" if tasks and tasks[0] in OF_A_TASK else None


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes_into_a_plan(option):
    task = task_of(option)
    trained = TRAINED if task == "task=compress" else None
    words = list(dict.fromkeys(filter(None, [option, VALUES.get(option), task, trained])))
    (job,) = jobs_of(run_parser().parse_intermixed_args(words))
    assert shlex.split(job.plan.rerun_command) == ["python", "-m", "llmexp", *words]
