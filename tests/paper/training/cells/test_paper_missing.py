"""The commands for the cells without a run plan exactly the runs that are missing."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from paper_runs import views

from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan

WHERE = ("hardware=a800", "measure=quick")


def plans(*words: str) -> dict[str, RunPlan]:
    return {job.plan.id: job.plan for job in jobs_of(run_parser().parse_intermixed_args(words))}


@pytest.mark.parametrize(
    ("name", "stand"),
    [
        ("table02", lambda plan: plan.config.batch.micro == 1),
        ("table04", lambda plan: plan.config.model.name == "7b" and plan.method != "Q"),
        ("table09", lambda plan: plan.method != "L+F" and plan.config.model.name != "70b"),
        ("fig04", lambda plan: plan.processes != 2),
    ],
)
def test_the_missing_cells_are_those_that_the_commands_plan(tmp_path: Path, name, stand) -> None:
    every = plans(f"experiment=paper_{name}", *WHERE)
    made = []
    for plan in filter(stand, every.values()):
        made.append(RunFolder(tmp_path / plan.folder_name))
        made[-1].write(made[-1].plan_path, plan)
    assert 0 < len(made) < len(every)
    (view,) = [view for view in views(*made, asked=[name]) if view.name == name]
    planned = {key for command in view.missing for key in plans(*shlex.split(command)[3:])}
    assert planned == set(every) - {folder.path.name.rpartition("_")[2] for folder in made}
