"""`python -m benchmarks [advice|paths|predict|scale|serving|traces|trust]` measures the program's cost and errors.

It prints the table, and exits with 1 where a limit is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.advice.suite import advice
from benchmarks.bare import STEPS
from benchmarks.commands import first_step, questions, sweeps
from benchmarks.copying import copying
from benchmarks.figure import Figure
from benchmarks.live import following
from benchmarks.paths import paths
from benchmarks.prediction.suite import predict
from benchmarks.scale import scale
from benchmarks.serving import serving
from benchmarks.serving_rivals import serving_rivals
from benchmarks.step import engine_against_engine, worker_step
from benchmarks.traces import traces
from benchmarks.trainer import beside_trainer
from benchmarks.trust import trust

# The suites in which other programs are measured beside llmexp.
RIVALS: dict[str, Callable[..., Iterator[Figure]]] = {"traces": traces, "serving": serving_rivals}


def figures(folder: Path) -> Iterator[Figure]:
    """Yield all figures, each as soon as it is measured."""
    yield from questions(folder, times=10)
    yield first_step(folder, times=5)
    yield from sweeps(folder, times=5)
    yield from copying(folder / "copying", times=3)
    yield following(folder / "live", times=3)
    for engine in STEPS:
        yield worker_step(folder, engine, rounds=40)
    yield worker_step(folder, "deepspeed", rounds=40, method="L")
    yield from engine_against_engine(folder, rounds=20)
    yield from beside_trainer(folder, pairs=6)


def table(found: list[Figure]) -> Table:
    """Return figures as a table for the terminal."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in ("figure", "unit", "mean", "95 % interval", "n", "limit", "verdict"):
        shown.add_column(header, justify="left" if header in ("figure", "unit", "verdict") else "right")
    for one in found:
        ends = f"{one.measured.low:.3f} to {one.measured.high:.3f}"
        shown.add_row(one.name, one.unit, f"{one.measured.mean:.3f}", ends, str(one.n), one.bounds, one.verdict)
    return shown


def main() -> int:
    """Measure in a scratch folder; return 1 where a limit is broken, else 0."""
    suites: dict[str, Callable[[Path], Iterator[Figure]]] = {
        "advice": advice,
        "cost": figures,
        "paths": paths,
        "predict": predict,
        "scale": scale,
        "serving": serving,
        "traces": traces,
        "trust": trust,
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    told = (
        "advice: choices that it would miss; cost: of one run and one command; paths: from nothing to the first "
        "answer; predict: errors of predictions; "
        "scale: of thousands; serving: of the load client; traces: of reading one; trust: errors of verdicts"
    )
    parser.add_argument("suite", nargs="?", choices=suites, default="cost", help=told)
    parser.add_argument(
        "--rivals",
        metavar="PYTHON",
        help="traces: an interpreter that has other readers of traces; serving: one that has vLLM or aiperf, or two, a "
        "comma between them",
    )
    args = parser.parse_args()
    if args.rivals and args.suite not in RIVALS:
        parser.error("--rivals is for traces and serving")
    measure, found = suites[args.suite], []
    if args.rivals:
        measure = partial(RIVALS[args.suite], rivals=args.rivals)
    with tempfile.TemporaryDirectory(prefix="llmexp-bench-") as folder:
        for figure in measure(Path(folder)):
            said = f"{figure.name}: {figure.measured.mean:.3f} {figure.unit}, {figure.verdict}"
            print(said, file=sys.stderr, flush=True)
            found.append(figure)
    Console(width=None if sys.stdout.isatty() else 140).print(table(found))
    print(
        f"{psutil.cpu_count()} cores; load average of the last minute {psutil.getloadavg()[0]:.1f}, "
        "the benchmarks' own included"
    )
    return 1 if any(figure.broken for figure in found) else 0


if __name__ == "__main__":
    sys.exit(main())
