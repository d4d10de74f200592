"""Figure 5 of the paper: the shares of a decoder layer's modules, without and with recomputation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.paper.printed.breakdowns import BACKWARD, DECODER_MODULES, FORWARD, PaperFigure, decoder_shares
from llmexp.paper.training.step_times.matching import Place, differences, said_once
from llmexp.paper.training.step_times.measured import MODULE_PARTS, MeasuredTimes
from llmexp.record.breakdown import RunBreakdown
from llmexp.report.columns import Column, ReportTable

METHODS = {"Naive": 2, "R": 32}
"""The two configurations: without recomputation at batch 2, and with it at batch 32."""
PHASES = (FORWARD, BACKWARD)


@dataclass(frozen=True)
class TimeBar:
    """A bar: the percentage of each module, all together 100."""

    phase: str
    name: str
    percent: dict[str, float]
    is_paper: bool = False


@dataclass(frozen=True)
class Figure5:
    """The bars of both phases, ours and then the paper's, and in what our runs differ from the paper's."""

    where: str
    bars: tuple[TimeBar, ...]
    unlike: tuple[str, ...]


def figure5(place: Place) -> Figure5 | None:
    """Return the figure where both configurations were measured here."""
    wanted = {method: PaperFigure((), (method,), batch, None, None) for method, batch in METHODS.items()}
    rows = {method: place.run_of(figure, method) for method, figure in wanted.items()}
    found = {method: (row, place.breakdowns.get(row.id)) for method, row in rows.items() if row}
    known = [(row, breakdown, wanted[method]) for method, (row, breakdown) in found.items() if breakdown]
    if len(known) < len(METHODS):
        return None
    bars = []
    for phase in PHASES:
        bars += [
            TimeBar(phase, f"{row.method}, batch {row.batch.micro}", _shares(each, phase)) for row, each, _ in known
        ]
        shares = {module: percent for (of, module), percent in decoder_shares().items() if of == phase}
        bars.append(TimeBar(phase, f"paper: Naive, batch {METHODS['Naive']}", shares, is_paper=True))
    unlike = said_once(differences(row, figure) for row, _, figure in known)
    return Figure5(place.name, tuple(bars), tuple(unlike)) if all(bar.percent for bar in bars) else None


def figure5_table(found: Figure5) -> ReportTable:
    """Return the figure as a table: a line for each module, a column for each bar."""
    names = list(dict.fromkeys(bar.name for bar in found.bars))
    lines = [(phase, module) for phase in PHASES for module in DECODER_MODULES]
    bars = {(bar.phase, bar.name): bar.percent for bar in found.bars}
    shares = {name: [_cell(bars[phase, name].get(module)) for phase, module in lines] for name in names}
    columns = [
        Column("phase", tuple(phase if module == DECODER_MODULES[0] else "" for phase, module in lines), left=True),
        Column("module", tuple(module for _, module in lines), left=True),
        *(Column(f"{name} %", tuple(cells)) for name, cells in shares.items()),
    ]
    title = f"figure 5 of the paper, shares of the modules of a decoder layer: {found.where}"
    return ReportTable(title, columns, legend(found))


def legend(found: Figure5) -> list[str]:
    """Say what the shares are of, and what the paper gives."""
    unlike = f"NOT the paper's runs ({', '.join(found.unlike)}): look at the pattern alone"
    return [
        *([unlike] if found.unlike else []),
        "shares of the computation of these modules together; what backward recomputes is left out",
        "paper: its shares at batch 2 follow from table VI; it gives no numbers for batch 32 with R, of which it says "
        "that shares change little",
    ]


def _shares(breakdown: RunBreakdown, phase: str) -> dict[str, float]:
    """Return the percentage of each module of the figure; empty where none of them was found."""
    parts = MeasuredTimes(breakdown, 1).parts
    times = {
        module: sum(parts.get((phase, part), 0.0) for part in MODULE_PARTS.get(module, (module,)))
        for module in DECODER_MODULES
    }
    whole = sum(times.values())
    return {module: 100 * time / whole for module, time in times.items() if time}


def _cell(percent: float | None) -> str:
    return "" if percent is None else f"{percent:.1f}"


def bars_of(found: Figure5, phase: str) -> Sequence[TimeBar]:
    """Return the bars of one phase."""
    return [bar for bar in found.bars if bar.phase == phase]
