"""The report over run folders: the rows of the paper's table, with our runs; how they are shown is the renderers' business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from llmexp.analysis.held import useful_fraction
from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.report.converged import NAIVE, Converged, converged, own_words
from llmexp.report.programs import engine_names
from llmexp.report.ratio import SpeedRatio
from llmexp.report.row import HERE, Row, read_row
from llmexp.report.scaling_series import Kind, Series, series_of

_IN_TITLE = {"hardware": "on {}", "ranks": "{} ranks", "batch": "batch {} a rank", "seq_len": "seq_len {}"}


@dataclass(frozen=True)
class Report:
    """Rows in the order of their folders; `unreadable` says of the other folders why they have none, `left_out` counts rows of other batches."""

    rows: tuple[Row, ...]
    unreadable: tuple[str, ...] = ()
    left_out: int = 0

    def joined(self, others: Report) -> Report:
        """These rows and then the others."""
        return Report(self.rows + others.rows, self.unreadable + others.unreadable, self.left_out + others.left_out)

    @cached_property
    def shared(self) -> dict[str, str]:
        """What all rows have in common, by name; the rest needs a column."""
        first = self.rows[0].work if self.rows else {}
        return {name: value for name, value in first.items() if all(row.work[name] == value for row in self.rows)}

    @property
    def title(self) -> str:
        """What all rows have in common, in one line."""
        shown = self.shown(self.rows[0]) if self.rows else {}
        return ", ".join(_IN_TITLE.get(name, "{}").format(shown[name]) for name, value in self.shared.items() if value not in (HERE, ""))

    def shown(self, row: Row) -> dict[str, str]:
        """A row's work in the words of cells and headings, which name programs in short."""
        return row.work | {"engine": self._engines[row.plan["id"]]}

    @cached_property
    def _engines(self) -> dict[str, str]:
        return engine_names(self.rows)

    def over_naive(self, row: Row) -> SpeedRatio | None:
        """Speed relative to Naive doing the same work in this table."""
        naive = self._naive.get(tuple(row.work.values()))
        return SpeedRatio(row, naive) if naive and row.metric("tokens_per_s") else None

    @cached_property
    def has_padding(self) -> bool:
        """Whether some row was measured with positions that hold no token."""
        rates = [(row.metric("real_tokens_per_s"), row.metric("tokens_per_s")) for row in self.rows]
        return any(real and every and real.mean < every.mean for real, every in rates)

    @cached_property
    def converged(self) -> dict[str, Converged]:
        """By run id, the runs of a token budget against their baselines."""
        return converged(self.rows)

    @cached_property
    def series(self) -> list[Series]:
        """Rows that differ in their number of ranks."""
        return series_of(self.rows)

    def efficiency(self, row: Row, kind: Kind) -> SpeedRatio | None:
        """Scaling efficiency of a row in its series of that kind; None where it is in none."""
        return next((series.efficiency_of(row) for series in self.series if series.kind == kind and row in series.rows), None)

    @cached_property
    def own_words(self) -> dict[str, str]:
        """By run id, what was typed for it alone; empty where methods and the other columns tell all runs apart."""
        told = {(row.method, *row.work.values()) for row in self.rows}
        words = own_words(self.rows) if len(told) < len(self.rows) else [""] * len(self.rows)
        return dict(zip((row.plan["id"] for row in self.rows), words, strict=True))

    @cached_property
    def versions(self) -> dict[str, str]:
        """What each runtime has of the distributions whose versions differ between these runs."""
        known = {row.work["runtime"]: row.distributions for row in self.rows if row.distributions}
        names = sorted({name for versions in known.values() for name in versions})
        differing = [name for name in names if len({versions.get(name) for versions in known.values()}) > 1]
        return {runtime: ", ".join(f"{name} {versions[name]}" for name in differing if name in versions) for runtime, versions in known.items()}

    @cached_property
    def has_several_stacks(self) -> bool:
        """Whether runs of one engine, hardware and runtime were measured by other code, libraries or devices than each other."""
        stacks: dict[tuple[str, ...], set[str]] = {}
        for row in self.rows:
            if row.result and row.result.stack:
                stacks.setdefault(tuple(row.work[name] for name in ("engine", "hardware", "runtime")), set()).add(row.result.stack)
        return any(len(found) > 1 for found in stacks.values())

    @cached_property
    def useful_fraction(self) -> float | None:
        """See analysis.held; None too where a rank's summary is broken."""
        try:
            return useful_fraction(row.folder for row in self.rows)
        except RecordError:
            return None

    @cached_property
    def _naive(self) -> dict[tuple[str, ...], Row]:
        found: dict[tuple[str, ...], Row] = {}
        for row in self.rows:
            if row.method == NAIVE and row.metric("tokens_per_s"):
                found.setdefault(tuple(row.work.values()), row)
        return found


def build_report(folders: Sequence[RunFolder]) -> Report:
    """Read run folders into a report; one that cannot be read is said and hides no other."""
    rows, unreadable = [], []
    for folder in folders:
        try:
            rows.append(read_row(folder))
        except RecordError as error:
            unreadable.append(str(error))
    return Report(tuple(rows), tuple(unreadable))
