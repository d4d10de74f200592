"""`python -m benchmarks.prediction.calibrated`: three runs of a platform that was left out calibrate its predictions.

Its constants are those of the other platforms and its data sheet; the multipliers are those of `llmexp calibrate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.prediction.cells import Cell
from benchmarks.prediction.fit import Runs, fitted, known_of, without_platform
from benchmarks.prediction.judge import PLATFORMS, THREE, Judge, Judged
from llmexp.training.predict import calibrated_interval
from llmexp.training.predict.calibration import multipliers_of
from llmexp.training.predict.interval import other_group

INTERVALS = Path(calibrated_interval.__file__).with_name("calibrated_intervals.yaml")
_HEAD = """\
# Written by `python -m benchmarks.prediction.calibrated`, for processors by `python -m benchmarks.prediction.on_cpu`.
# The ends of 90 % intervals of tokens/s as shares of the prediction, and the runs that they come from.
"""


def judged(judge: Judge) -> Judged:
    """Predict a platform's runs by the other platforms' and, as multipliers, three of its own."""
    cells: list[Cell] = []
    errors: list[float] = []
    for platform in PLATFORMS:
        known = _elsewhere(judge, platform)
        for machine in platform:
            here = [cell for cell in judge.printed if cell.hardware == machine]
            multipliers = multipliers_of([cell.evidence(known) for cell in here if _is_kept(cell)])
            out = [cell for cell in here if not _is_kept(cell)]
            cells += out
            errors += [cell.evidence(known).error(multipliers) for cell in out]
    return Judged("a platform left out, three of its runs calibrate", cells, np.array(errors))


def _elsewhere(judge: Judge, platform: Sequence[str]) -> dict[str, Any]:
    """Return the constants as they would be had nobody ever measured this platform."""
    constants = [one for one in judge.constants if not one.machines or set(one.machines) - set(platform)]
    cells = [cell for cell in judge.printed if cell.hardware not in platform]
    logs = fitted(Runs([*cells, *judge.card], constants), constants)
    return without_platform(known_of(constants, logs), platform)


def _is_kept(cell: Cell) -> bool:
    return any(
        (cell.table, cell.plan.config.model.name, cell.method) == (table, model, frozenset(method.split("+")))
        for table, model, method in THREE
    )


def intervals(found: Judged) -> dict[str, list[float]]:
    """Return the conformal ends of 90 % intervals of tokens/s as shares of the prediction, by group."""
    return dict(_intervals(found))


def _intervals(found: Judged) -> Iterator[tuple[str, list[float]]]:
    for offloads in (True, False):
        part = found.part("", [cell.offloads == offloads for cell in found.cells])
        n = len(part.cells)
        # These are logarithms of predicted over measured time, and so of measured over predicted speed.
        ends = [np.quantile(part.errors, share) for share in (0.05 - 0.95 / n, min(1.0, 0.95 * (n + 1) / n))]
        yield other_group(offloads=offloads), [*(round(float(np.exp(end)), 3) for end in ends), n]


def write_intervals(found: Mapping[str, Sequence[float]], path: Path = INTERVALS) -> None:
    """Write the intervals of some groups into the file, which keeps those of the others."""
    before = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    made = before | {name: list(ends) for name, ends in found.items()}
    path.write_text(_HEAD + yaml.safe_dump(made, sort_keys=False), encoding="utf-8")


def main() -> None:
    """Judge, write the intervals, and print the errors."""
    found = judged(Judge())
    write_intervals(intervals(found))
    print(f"{found.name}: {len(found.cells)} runs, median error {100 * np.median(found.off):.1f} %, ", end="")
    print(f"95 % below {100 * np.quantile(found.off, 0.95):.1f} %")
    for platform in PLATFORMS:
        part = found.part("", [cell.hardware in platform for cell in found.cells])
        print(f"  {', '.join(platform)}: {len(part.cells)} runs, median {100 * np.median(part.off):.1f} %")


if __name__ == "__main__":
    main()
