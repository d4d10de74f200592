"""The paper's own tables as it prints them, for those of which there is no run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from llmexp.errors import ConfigError
from llmexp.paper import machines
from llmexp.paper.printed import SOURCE, PaperCell, paper_cells, read_table, remark_of
from llmexp.paper.views.names import ROMAN, TITLES, experiment_of, words_of
from llmexp.paper.views.notes import Notes
from llmexp.report.columns import Column, ReportTable
from llmexp.report.references.view import View

_BY_METHOD = {"table03": "III", "table04": "IV", "table09": "IX"}
_SHORT = {"rtx3090_nvlink": "3090 nvlink", "rtx4090": "4090", "rtx3090": "3090"}
_LEFT_OUT_FIRST = ("GB", "batch", "tokens/s")
# The reading of a table's file; its notes stand as letters.
_LEFT_OUT = ("note", "row_type", "seq_len_tokens", "tensor_parallel")


def printed(name: str) -> View:
    """Return a table of the paper with nothing beside it. Raises ConfigError for a figure, whose values it omits."""
    if name == machines.NAME:
        return machines.machines_view(())
    notes, same = Notes(), ""
    if name in _BY_METHOD:
        columns = _by_method(_BY_METHOD[name], notes)
    elif name in ROMAN.values():
        columns, same = _as_filed(_file(name), notes), _same(_file(name))
    else:
        raise ConfigError(
            f"{words_of(name)} has no printed values, and no run here answers it: "
            f"python -m llmexp experiment={experiment_of(name)} measures it"
        )
    legend = [f"paper: {SOURCE}; ?: probably wrong, for the reason in its note; -: out of memory", same, *notes.lines]
    table = ReportTable(
        f"{words_of(name)}, {TITLES[name]}: as printed, no run here answers it",
        columns,
        [line for line in legend if line],
    )
    return View(name, table, missing=[f"python -m llmexp experiment={experiment_of(name)}"])


def _by_method(number: str, notes: Notes) -> list[Column]:
    """Return methods as lines and machines as columns, which is the paper's layout."""
    found: dict[tuple[str, str], dict[str, PaperCell]] = {}
    for cell in paper_cells(number):
        found.setdefault((cell.model, cell.method), {})[cell.hardware] = cell
    machines = list(dict.fromkeys(cell.hardware for cell in paper_cells(number)))
    # Line by line, so that the letters of notes come in the order of reading.
    lines = [
        [*names, *(text for machine in machines for text in _texts(here[machine], number, notes))]
        for names, here in found.items()
    ]
    parts = ("batch", "tokens/s", "GB")[number != "IV" :]
    headers = ["model", "method", *(f"{_SHORT.get(machine, machine)} {part}" for machine in machines for part in parts)]
    # A narrow terminal leaves out the last machine first, and of it the memory.
    ranks = [0, 0, *(_rank(place, len(machines), part) for place, _ in enumerate(machines) for part in parts)]
    columns = zip(headers, zip(*lines, strict=True), ranks, strict=True)
    return [Column(header, cells, header in headers[:2], rank) for header, cells, rank in columns]


def _rank(place: int, machines: int, part: str) -> int:
    """Return when a column is left out: never of the first machine."""
    return len(_LEFT_OUT_FIRST) * (machines - place) + _LEFT_OUT_FIRST.index(part) if place else 0


def _texts(cell: PaperCell, number: str, notes: Notes) -> list[str]:
    """Return what stands of a cell, with its batch in table IV; a doubt stands behind the figure that it is of."""
    mark = f" ?{notes.mark(cell.remark)}" if cell.doubtful else ""  # what is odd and as printed has no room here
    speed = "-" if cell.tokens_per_s is None else f"{cell.tokens_per_s:,.1f}"
    memory = f"{cell.memory_bytes / 1e9:.1f}" if cell.memory_bytes else ""
    told = [speed, memory + mark] if cell.is_about_memory else [speed + mark, memory]
    return [*([str(cell.batch_micro or "")] if number == "IV" else []), *told]


def _as_filed(rows: Sequence[Mapping[str, str]], notes: Notes) -> list[Column]:
    """Return the columns whose cells differ, with each line's sign and note at its end."""
    headers = [header for header in rows[0] if header not in _LEFT_OUT and len({row[header] for row in rows}) > 1]
    columns = [
        Column(_heading(header), tuple(row[header] for row in rows), _is_text(rows, header)) for header in headers
    ]
    signs = [" ?" * row["note"].startswith("doubt:") + notes.mark(remark_of(row["note"])) for row in rows]
    return [*columns, Column("", tuple(sign.strip() for sign in signs), left=True)] if any(signs) else columns


def _same(rows: Sequence[Mapping[str, str]]) -> str:
    """Return what is the same in every line."""
    same = {header: rows[0][header] for header in rows[0] if len({row[header] for row in rows}) == 1}
    told = [f"{_heading(header)} {value}" for header, value in same.items() if header != "note" and value]
    return f"in every line: {', '.join(told)}" if told else ""


def _heading(header: str) -> str:
    return header.replace("_percent", " %").replace("_gb", " GB").replace("_per_s", "/s").replace("_", " ")


def _is_text(rows: Sequence[Mapping[str, str]], header: str) -> bool:
    return not any(row[header].replace(".", "", 1).isdigit() for row in rows)


def _file(name: str) -> list[dict[str, str]]:
    found = next(each.name for each in files("llmexp.paper.printed").iterdir() if each.name.startswith(f"{name}_"))
    return read_table(found.removesuffix(".csv"))
