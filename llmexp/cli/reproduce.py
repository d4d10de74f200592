"""A result measured again from its folder alone, on this machine and with the code that is here now."""

from __future__ import annotations

import shlex

from llmexp.cli.sweep import check_store, folder_of, remeasure
from llmexp.engines.resolve import resolve
from llmexp.errors import RecordError
from llmexp.launch.preflight import other_hardware
from llmexp.plan.detect import detect
from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus
from llmexp.report.compare import compare
from llmexp.report.reproduction import Verdict, judge
from llmexp.report.terminal import print_comparison

SWEEP = "reproduced"
# What is measured again: one process, as a first look takes, could not tell how far the next is from it.
LEAST_REPEATS = 3


def reproduce(earlier: RunFolder) -> int:
    """Measure an ended run again, into the sweep 'reproduced', and print what differs and the verdict; 0 where it is reproduced."""
    result = earlier.result()
    if result is None:
        raise RecordError(f"{earlier.path} has no result to reproduce: it is {earlier.state()}")
    plan = planned_again(earlier)
    check_store(plan)
    elsewhere = None if result.status is RunStatus.SKIPPED else other_hardware(plan, detect())
    if elsewhere:
        print(Verdict(None, elsewhere))
        return 1
    again, repeats = folder_of(plan), plan.config.measure.repeats
    print(f"measuring {earlier.path} again, by {repeats} processes, into {again.path}", flush=True)
    remeasure(plan, again)
    comparison = compare(earlier, again)
    verdict = judge(comparison)
    print_comparison(comparison)
    print(verdict)
    return 0 if verdict.reproduced else 1


def planned_again(earlier: RunFolder) -> RunPlan:
    """Plan the run's own configuration with the present code, and repeats enough; raises RecordError for a plan that this version cannot read."""
    try:
        planned = RunPlan.read(earlier.plan_path)
    except RecordError as error:
        raise RecordError(f"{error}; {_command(earlier)}") from None
    sweep, words = planned.config.sweep.model_copy(update={"name": SWEEP}), shlex.split(planned.rerun_command)[3:]
    measure = planned.config.measure
    if measure.repeats < LEAST_REPEATS:
        measure, words = measure.model_copy(update={"repeats": LEAST_REPEATS}), [*words, f"measure.repeats={LEAST_REPEATS}"]
    return resolve(planned.config.model_copy(update={"sweep": sweep, "measure": measure}), words)


def _command(folder: RunFolder) -> str:
    result = folder.result()
    return f"try {result.command}" if result else "it has no command either"
