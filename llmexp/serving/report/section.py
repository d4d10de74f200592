"""The section of served loads: the runs, every load point, who did the same work, and the distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from llmexp.report.breakdown.plot import draw_breakdowns
from llmexp.report.columns import ReportTable
from llmexp.report.page.chart import Chart
from llmexp.report.row import Row
from llmexp.report.section import ReportSection
from llmexp.serving.report.answers import answers_table, changed_lines
from llmexp.serving.report.distributions import draw_distributions
from llmexp.serving.report.interactivity import draw_interactivity
from llmexp.serving.report.loads import loads_table, saturation_lines
from llmexp.serving.report.page_charts import serving_charts
from llmexp.serving.report.profiled import ProfiledRun, profile_tables, profiled_runs, unprofiled_lines
from llmexp.serving.report.same_work import same_work_lines

LENGTHS = {"prompt": "{} in", "output": "{} out"}
_IN_LABEL = LENGTHS | {"devices": "tp {}", "requests": "{} requests", "loads": "at {}"}
# As many runs a picture of profiled steps has, with three bars each at most.
MOST_BARS = 8
_HELD = {"weights_bytes_from": "weights", "kv_cache_from": "tokens of the KV cache"}


@dataclass(frozen=True)
class ServingSection(ReportSection):
    """Runs of task=serve, each of a server under several loads."""

    @property
    def title(self) -> str:
        """What all runs serve, and the load, without what the table of loads shows."""
        shown = self.shared
        named = [f"serving {shown['model']}" if "model" in shown else "serving"]
        named += [f"on {shown['hardware']}"] if "hardware" in shown else []
        named += [shown["engine"]] if "engine" in shown else []
        named += [f"tp {shown['devices']}"] if shown.get("devices", "1") != "1" else []
        named += [shown["dtype"]] if "dtype" in shown else []
        named += [words.format(shown[name]) for name, words in LENGTHS.items() if name in shown]
        named += [shown[name] for name in ("prefix", "trace", "sampling", "turns") if shown.get(name)]
        sent = "conversations" if shown.get("turns") else "requests"
        return ", ".join([*named, *([f"{shown['requests']} {sent} a load"] if "requests" in shown else [])])

    def label(self, row: Row) -> str:
        """Return a run's name in tables and pictures: its engine, and what else differs between runs."""
        varying = [
            _IN_LABEL.get(name, "{}").format(value)
            for name, value in self.shown(row).items()
            if value and name not in (*self.shared, "engine")
        ]
        return " ".join(filter(None, [row.name, *varying, self.own_words[row.id]]))

    @property
    def tables(self) -> Sequence[ReportTable]:
        """The table of loads, the verdicts on answers, and where the time of profiled servers went."""
        found = (loads_table(self.rows, self.label), answers_table(self.rows, self.label))
        return [*(table for table in found if table), *profile_tables(self.profiled), *super().tables]

    @cached_property
    def profiled(self) -> list[ProfiledRun]:
        """The runs with what their profiles say."""
        return profiled_runs(self.rows, self.label)

    @cached_property
    def legend(self) -> list[str]:
        """The meaning of the columns, and which runs did the same work."""
        found = [*super().legend, *_held_lines(self.rows, self.label), *same_work_lines(self.rows, self.label)]
        return [*found, *self.beside.legend("end"), *unprofiled_lines(self.profiled)]

    @property
    def answers(self) -> list[str]:
        """The fastest, which gave other answers, and where each saturates; the loads' table says what is not known."""
        told = [line for line in saturation_lines(self.rows, self.label) if not line.startswith("?")]
        changed = changed_lines(self.rows, self.label)
        return [*super().answers, *changed, *(f"{line[:1].upper()}{line[1:]}." for line in told)]

    @property
    def charts(self) -> Sequence[Chart]:
        """Throughput against interactivity, latency over throughput, and the distributions of latencies."""
        return list(serving_charts(self.rows, self.label))

    @property
    def drawn_as_charts(self) -> Sequence[str]:
        """The pictures of latencies and of throughput against interactivity."""
        return ("latencies", "interactivity")

    def draw_more(self, path: Path) -> list[Path]:
        """Draw the distributions of latencies, and throughput against interactivity."""
        pictures = {"latencies": draw_distributions, "interactivity": draw_interactivity}
        written = []
        for name, draw in pictures.items():
            place = path.with_name(f"{path.stem}_{name}{path.suffix}")
            if draw(self.rows, self.title, self.label, place):
                written.append(place)
        if steps := [each for run in self.profiled for each in run.profiled]:
            written.append(path.with_name(f"{path.stem}_modules{path.suffix}"))
            draw_breakdowns(steps[:MOST_BARS], self.title, written[-1])
        return [*written, *super().draw_more(path)]


def _held_lines(rows: Sequence[Row], label: Callable[[Row], str]) -> Iterator[str]:
    """Yield a line for weights and one for the cache: the sources, each with its runs where there are several."""
    for name, what in _HELD.items():
        by_source: dict[str, list[str]] = {}
        for row in rows:
            source = row.result.what_ran.get(name) if row.result else None
            if source:
                by_source.setdefault(str(source), []).append(label(row))
        if by_source:
            yield f"{what}: by {'; by '.join(_words(by_source))}"


def _words(by_source: dict[str, list[str]]) -> list[str]:
    if len(by_source) == 1:
        return list(by_source)
    return [f"{source} ({', '.join(dict.fromkeys(runs))})" for source, runs in by_source.items()]
