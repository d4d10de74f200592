"""Makes many run folders from few.

Files that were hard to make are linked; those that tell runs apart are written by the code that always writes them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from llmexp.record.folder import RunFolder
from llmexp.record.run_id import identity
from llmexp.training.plan.training_plan import TrainingPlan

WRITTEN = ("plan.json", "result.json")


def multiply(seeds: Sequence[RunFolder], outputs: Path, sweeps: int, runs: int) -> list[RunFolder]:
    """Make `sweeps` sweeps of `runs` ended runs each below `outputs`.

    Each run is like one of the seeds except for its sweep, its seed and therefore its id.
    """
    return [
        _copy(seeds[run % len(seeds)], outputs, f"sweep{sweep:03}", run)
        for sweep in range(sweeps)
        for run in range(runs)
    ]


def _copy(seed: RunFolder, outputs: Path, sweep: str, number: int) -> RunFolder:
    earlier, result = TrainingPlan.read(seed.plan_path), seed.result()
    sweep_config = earlier.config.sweep.model_copy(update={"name": sweep, "outputs": str(outputs)})
    config = earlier.config.model_copy(update={"seed": number, "sweep": sweep_config})
    plan = earlier.model_copy(update={"config": config, "id": identity(config, earlier.engine_config)})
    folder = RunFolder(outputs / sweep / plan.folder_name)
    for path in seed.path.rglob("*"):
        place = folder.path / path.relative_to(seed.path)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path.name not in WRITTEN:
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, place)
    folder.write(folder.plan_path, plan)
    if result:
        folder.write(folder.result_path, result.model_copy(update={"id": plan.id, "sweep": sweep}))
    return folder
