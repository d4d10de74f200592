"""Where runs stand, read from their folders alone."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from llmexp.errors import RecordError
from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder
from llmexp.record.result import read_samples


def print_status(folders: Sequence[RunFolder]) -> None:
    """Print a row a run: how far it came, how it ended and why."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for header in ("run", "state", "repeats", "measured steps"):
        table.add_column(header, no_wrap=True)
    table.add_column("reason")
    for folder in folders:
        table.add_row(*row(folder))
    Console().print(table)


def row(folder: RunFolder) -> list[str]:
    """The run's name, state, repeats and measured steps of those planned, and reason; what cannot be read is said in the reason."""
    name = f"{folder.path.parent.name}/{folder.path.name}"
    try:
        measure = RunPlan.read(folder.plan_path).config.measure
        result = folder.result()
        repeats, steps = _progress(folder)
        return [name, folder.state(), f"{repeats}/{measure.repeats}", f"{steps}/{measure.steps}", result.reason if result else ""]
    except (RecordError, ValidationError) as error:
        return [name, "unreadable", "", "", str(error).partition("\n")[0]]


def _progress(folder: RunFolder) -> tuple[int, int]:
    """Repeats that rank 0 finished, and steps that it has measured in the latest one."""
    repeats = folder.repeats()
    finished = sum((repeat / "rank.0.json").exists() for repeat in repeats)
    samples = repeats[-1] / "samples.0.jsonl" if repeats else None
    return finished, sum(not sample.warmup for sample in read_samples(samples)) if samples and samples.exists() else 0
