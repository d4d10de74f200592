"""The paper's own tables as it prints them, for those of which there is no run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from llmexp.errors import ConfigError
from llmexp.reference import SOURCE, PaperCell, paper_cells, read_table, remark_of
from llmexp.report.columns import Column, Detail
from llmexp.report.paper.names import ROMAN, TITLES, experiment_of, words_of
from llmexp.report.paper.notes import Notes
from llmexp.report.paper.view import PaperView

_BY_METHOD = {"table03": "III", "table04": "IV", "table09": "IX"}
_SHORT = {"rtx3090_nvlink": "3090 nvlink", "rtx4090": "4090", "rtx3090": "3090"}
_MACHINES = 4
# The reading of a table's file; its notes stand as letters.
_LEFT_OUT = ("note", "row_type", "seq_len_tokens", "tensor_parallel")


def printed(name: str) -> PaperView:
    """Return a table of the paper with nothing beside it. Raises ConfigError for a figure, whose values it omits."""
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
    detail = Detail(
        f"{words_of(name)}, {TITLES[name]}: as printed, no run here answers it",
        columns,
        [line for line in legend if line],
    )
    return PaperView(name, detail, missing=[f"python -m llmexp experiment={experiment_of(name)}"])


def _by_method(number: str, notes: Notes) -> list[Column]:
    """Return methods as lines and machines as columns, which is the paper's layout."""
    cells = paper_cells(number)
    found = {(cell.model, cell.method, cell.hardware): cell for cell in cells}
    lines = list(dict.fromkeys((cell.model, cell.method) for cell in cells))
    columns = [
        Column("model", tuple(model for model, _ in lines), left=True),
        Column("method", tuple(method for _, method in lines), left=True),
    ]
    for place, hardware in enumerate(dict.fromkeys(cell.hardware for cell in cells)):
        dispensable = _MACHINES - place if place else 0  # a narrow terminal leaves out the last machine first
        here, short = [found[*line, hardware] for line in lines], _SHORT.get(hardware, hardware)
        speeds = [_speed(cell) + _remark(cell, notes) * (not cell.is_about_memory) for cell in here]
        memory = [_memory(cell) + (_remark(cell, notes) if cell.is_about_memory else "") for cell in here]
        if number == "IV":
            batches = tuple(str(cell.batch_micro or "") for cell in here)
            columns.append(Column(f"{short} batch", batches, dispensable=dispensable))
        columns.append(Column(f"{short} tokens/s", tuple(speeds), dispensable=dispensable))
        columns.append(Column(f"{short} GB", tuple(memory), dispensable=dispensable))
    return columns


def _speed(cell: PaperCell) -> str:
    return "-" if cell.tokens_per_s is None else f"{cell.tokens_per_s:,.1f}"


def _memory(cell: PaperCell) -> str:
    return f"{cell.memory_bytes / 1e9:.1f}" if cell.memory_bytes else ""


def _remark(cell: PaperCell, notes: Notes) -> str:
    """Return sign and letter of a doubtful figure; what is odd and as printed has no room here."""
    return f" ?{notes.mark(cell.remark)}" if cell.doubtful else ""


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
    found = next(each.name for each in files("llmexp.reference").iterdir() if each.name.startswith(f"{name}_"))
    return read_table(found.removesuffix(".csv"))
