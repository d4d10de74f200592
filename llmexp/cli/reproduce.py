"""Reproduction: a result is measured again from its folder alone, on this machine and with the present code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmexp.cli.resolvers import server_python
from llmexp.errors import ConfigError, RecordError
from llmexp.launch.detect import detect
from llmexp.launch.preflight import other_hardware
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunStatus
from llmexp.report.compare import compare
from llmexp.report.reproduction import ReproductionVerdict, judge
from llmexp.report.terminal import print_comparison
from llmexp.sweep.measuring import folder_of, remeasure
from llmexp.sweep.run import check_store
from llmexp.tasks.resolve import resolve

SWEEP = "reproduced"
# A single process, as in a first look, could not tell how far the next process is from it.
LEAST_REPEATS = 3
# These settings run other code, or reach other places.
BEYOND = (
    *(
        "runtime.setup",
        "runtime.modules",
        "runtime.container",
        "runtime.image",
        "runtime.program",
        "runtime.options",
        "runtime.python",
    ),
    *(
        "runtime.environment",
        "hardware.environment",
        "hardware.serving_environment",
        "engine.python",
        "engine.options",
        "optimizer.target",
        "model.target",
        "model.trust_remote_code",
    ),
    *("tracking.uri", "sweep.outputs"),
)


def reproduce(earlier: RunFolder, trusted: bool = False) -> int:
    """Measure an ended run again, into the sweep 'reproduced', and print what differs and the verdict.

    Returns 0 where the run is reproduced, and otherwise 1.

    A folder that is not `trusted` may be anybody's, so ConfigError is raised where its plan starts or reaches more than
    llmexp's own ranks do.
    """
    result = earlier.result()
    if result is None:
        raise RecordError(f"{earlier.path} has no result to reproduce: it is {earlier.state()}")
    plan = planned_again(earlier)
    if not trusted and (more := beyond(plan, earlier)):
        raise ConfigError(f"{earlier.path} would do this here: {'; '.join(more)}: if you trust it, add --yes")
    check_store(plan)
    elsewhere = None if result.status is RunStatus.SKIPPED else other_hardware(plan, detect())
    if elsewhere:
        print(ReproductionVerdict(None, elsewhere))
        return 1
    again, repeats = folder_of(plan), plan.config.measure.repeats
    print(f"measuring {earlier.path} again, with {repeats} processes, into {again.path}", flush=True)
    remeasure(plan, again)
    comparison = compare(earlier, again)
    verdict = judge(comparison)
    print_comparison(comparison)
    print(verdict)
    return 0 if verdict.reproduced else 1


def beyond(plan: RunPlan, earlier: RunFolder) -> list[str]:
    """Return what a plan starts or reaches besides llmexp's own ranks, key by key.

    The usual tracker, this machine's own server and the earlier run's folder of outputs do not count.
    """
    config = plan.config
    known = {"tracking.uri": config.tracking.uri == os.environ.get("MLFLOW_TRACKING_URI")}
    known["engine.python"] = getattr(config.engine, "python", None) == server_python(config.engine.name)
    known["sweep.outputs"] = Path(config.sweep.outputs).resolve() == earlier.path.resolve().parents[1]
    told = config.model_dump(mode="json", exclude_defaults=True)
    found = {key: value for key in BEYOND if (value := _at(told, key.split("."))) and not known.get(key)}
    return [f"{key}={json.dumps(value)}" for key, value in found.items()]


def _at(told: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        told = told.get(key) if isinstance(told, Mapping) else None
    return told


def planned_again(earlier: RunFolder) -> RunPlan:
    """Plan the run's own configuration with the present code and with enough repeats.

    Raises RecordError for a plan that this version cannot read.
    """
    try:
        planned = RunPlan.read(earlier.plan_path)
        words = planned.overrides
    except RecordError as error:
        raise RecordError(f"{error}; {_command(earlier)}") from None
    sweep = planned.config.sweep.model_copy(update={"name": SWEEP})
    measure = planned.config.measure
    if measure.repeats < LEAST_REPEATS:
        measure, words = (
            measure.model_copy(update={"repeats": LEAST_REPEATS}),
            [*words, f"measure.repeats={LEAST_REPEATS}"],
        )
    # This machine may not have them, and whoever made the folder may have named any.
    tracking = planned.config.tracking.model_copy(update={"also": ()})
    changed = {"sweep": sweep, "measure": measure, "tracking": tracking}
    return resolve(planned.config.model_copy(update=changed), words)


def _command(folder: RunFolder) -> str:
    result = folder.result()
    return f"try {result.command}" if result else "it has no command either"
