"""Weights & Biases, offline unless WANDB_MODE=online: `wandb sync outputs/wandb/*/*/offline-run-*` uploads all runs.

W&B takes the time at which it is told for the start of a run. So only the times of its points are those of the run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.errors import ConfigError
from llmexp.record.folder import PLAN, RESULT
from llmexp.record.installed import installs
from llmexp.record.result import RunStatus
from llmexp.record.trackers.points import Point
from llmexp.record.trackers.run_tracker import RunTracker, TrackedRun

if TYPE_CHECKING:
    from wandb import Run

OFFLINE, MODES = "offline", ("offline", "online")
# It watches its process, which is not the run's, and reports its errors over the network.
QUIET = dict.fromkeys(
    ("WANDB_SILENT", "WANDB_DISABLE_GIT", "WANDB_DISABLE_CODE", "WANDB_X_DISABLE_META", "WANDB_X_DISABLE_STATS"), "true"
) | {"WANDB_CONSOLE": "off", "WANDB_ERROR_REPORTING": "false", "WANDB_X_DISABLE_MACHINE_INFO": "true"}
# What a shell may have set for a program of its own: W&B would go on with an earlier run, or look for a sweep.
NOT_OURS = ("WANDB_RESUME", "WANDB_SWEEP_ID")
LABELS, LONGEST_LABEL = ("model", "method", "engine", "hardware", "status", "stability"), 64
COPIED = (PLAN, RESULT)


class WeightsAndBiases(RunTracker):
    """Parameters as config, final values as summary, the others as history; a sweep is a group, its task a job type."""

    name = "wandb"
    library = "wandb"
    install = installs("wandb")

    def check(self) -> None:
        """Raise ConfigError where wandb is missing, or is told to do something else with runs."""
        super().check()
        if (mode := _mode()) not in MODES:
            raise ConfigError(
                f"WANDB_MODE={mode}: tracking.also=wandb takes {' or '.join(MODES)}; set one of them, unset it for "
                f"{OFFLINE}, or leave wandb out"
            )

    def write(self, run: TrackedRun, folder: Path) -> None:
        """Write what `wandb sync` uploads, or upload it."""
        begun = _begin(run, folder)
        begun.summary.update({_name(name): value for name, value in run.metrics.items()})
        for name, axis in {point.name: _axis(point) for point in run.points}.items():
            begun.define_metric(_name(name), step_metric=axis)
        for row in _rows(run.points):
            begun.log(row)
        _add_files(begun, run)
        begun.finish(exit_code=0 if RunStatus(run.status).is_answer else 1)
        _keep_the_run_alone(folder)


def _begin(run: TrackedRun, folder: Path) -> Run:
    for name in NOT_OURS:
        os.environ.pop(name, None)
    os.environ.update(QUIET | {"WANDB_CACHE_DIR": str(folder / "cache")})
    import wandb

    labels = [run.tags[name][:LONGEST_LABEL] for name in LABELS if name in run.tags]
    return wandb.init(
        dir=folder,
        project=os.environ.get("WANDB_PROJECT") or run.project,
        id=run_id(run),
        name=run.name,
        group=run.sweep,
        job_type=run.task,
        tags=list(dict.fromkeys(labels)),
        notes=run.note,
        config=dict(run.tags) | dict(run.params),
        mode=_mode(),  # type: ignore[arg-type]
    )


def run_id(run: TrackedRun) -> str:
    """Return an id that stays when the run is measured again, and differs from the same run's of another sweep."""
    return f"{run.id}-{hashlib.sha256(run.sweep.encode()).hexdigest()[:8]}"


def _mode() -> str:
    return os.environ.get("WANDB_MODE") or OFFLINE


def _name(name: str) -> str:
    """Return a metric's name without dots, which lead W&B into a value."""
    return name.replace(".", "_")


def _axis(point: Point) -> str:
    """Return the name of what a metric is drawn over, beside it: its steps, or tokens for `loss_over_tokens`."""
    group, _, last = _name(point.name).rpartition("/")
    _, over, unit = last.rpartition("_over_")
    return f"{group}/{unit if over else 'step'}"


def _rows(points: Iterable[Point]) -> Iterator[dict[str, Any]]:
    """Yield rows of values that share an axis, a step and a time, in the order of their times."""
    rows: dict[tuple[int, str, int], dict[str, Any]] = {}
    for point in points:
        row = rows.setdefault((point.at_ms, _axis(point), point.step), {"_timestamp": point.at_ms / 1e3})
        row |= {_axis(point): point.step, _name(point.name): point.value}
    for key in sorted(rows):
        yield rows[key]


def _add_files(begun: Run, run: TrackedRun) -> None:
    """Add pictures, the plan and the result."""
    import wandb

    pictures: dict[str, Any] = {
        _name(file.name.removesuffix(".png")): wandb.Image(str(file.path)) for file in run.files if file.picture_size
    }
    if pictures:
        begun.log(pictures | {"_timestamp": run.window.end_s})
    for file in run.files:
        if file.name in COPIED:
            place = Path(begun.dir) / file.name
            place.write_bytes(file.content())
            begun.save(str(place), base_path=begun.dir, policy="now")


def _keep_the_run_alone(folder: Path) -> None:
    """Move W&B's folder of the run up, without its logs, by whose name `wandb sync` knows what it has to upload."""
    (written,) = (path for path in (folder / "wandb").glob("*run-*-*") if not path.is_symlink())
    for path in written.iterdir():
        if path.is_dir() and path.name != "files":
            shutil.rmtree(path)
    written.rename(folder / written.name)
    for name in ("wandb", "cache"):
        shutil.rmtree(folder / name, ignore_errors=True)


WANDB = WeightsAndBiases()
