"""The section of runs that trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from llmexp.record.result import RunStatus
from llmexp.report.breakdown.limits import limits_table
from llmexp.report.breakdown.modules import module_table
from llmexp.report.breakdown.parts import Profiled, breakdown_of
from llmexp.report.columns import Bars, Column, ReportTable
from llmexp.report.page.chart import Chart, Matrix
from llmexp.report.ratio import RateRatio
from llmexp.report.row import Row
from llmexp.report.section import ReportSection
from llmexp.report.signs import PARTLY_TRAINED
from llmexp.training.report.batches import largest_batches
from llmexp.training.report.columns import columns
from llmexp.training.report.conclusion import conclusion
from llmexp.training.report.converged import Converged, converged
from llmexp.training.report.engine_notes import engine_note, update_note
from llmexp.training.report.equal_loss_table import equal_loss_tables
from llmexp.training.report.legend import explained, legend
from llmexp.training.report.memory_column import memory_header, memory_unit
from llmexp.training.report.page_charts import training_charts, training_matrices
from llmexp.training.report.predicted_column import predicted_values
from llmexp.training.report.programs import engine_names
from llmexp.training.report.relative_speeds import RelativeSpeeds
from llmexp.training.report.row import TrainingRow
from llmexp.training.report.scaling_series import KINDS, Kind, ScalingSeries, series_of
from llmexp.training.report.search_table import search_tables
from llmexp.training.report.searched_batch import SearchedBatch, search_note, search_of
from llmexp.training.report.training_budget_table import budget_of, budget_record, budget_table, check_budget

# As many columns fit a terminal, and as many bars a picture.
MOST_PROFILED, MOST_BARS = 6, 24
_IN_TITLE = {"batch": "batch {} a rank"} | dict.fromkeys(("model", "layout", "data", "precision", "optimizer"), "{}")


@dataclass(frozen=True)
class TrainingSection(ReportSection):
    """The runs of pre-training and fine-tuning."""

    rows: tuple[TrainingRow, ...]

    def largest_batches(self) -> TrainingSection:
        """Keep the runs that answer Table IV's question, and count the others in `left_out`."""
        rows = largest_batches(self.rows)
        return replace(self, rows=rows, left_out=len(self.rows) - len(rows))

    def words_of(self, name: str) -> str:
        """Return the template of a part in the title; common names stand there without a label."""
        return _IN_TITLE.get(name) or super().words_of(name)

    def shown(self, row: Row) -> dict[str, str]:
        """Return the row's work with programs under their short names."""
        return row.comparison_key | {"engine": self._engines[row.id]}

    @cached_property
    def _engines(self) -> dict[str, str]:
        return engine_names(self.rows)

    @property
    def comparable(self) -> list[TrainingRow]:
        """The runs that did the training that they were asked for, as far as is known."""
        return [row for row in self.rows if row.folder.path not in self.other_trainings]

    @property
    def columns(self) -> list[Column]:
        """The columns of this section."""
        return columns(self)

    @property
    def legend(self) -> list[str]:
        """The legend, and how far runs converged and scaled, and whether they trained the same."""
        return [*legend(self), *self.beside.legend("end")]

    @property
    def explained(self) -> list[str]:
        """The lines of the legend that a terminal shows on demand."""
        return explained(self)

    def name_cell(self, row: Row, name: str) -> str:
        """Return one of the name fields; a method that trains only parts of the model is marked."""
        marked = name == "method" and isinstance(row, TrainingRow) and row.partly_trained
        return super().name_cell(row, name) + PARTLY_TRAINED * marked

    def notes_of(self, row: Row) -> Sequence[str]:
        """Return the row's notes, and those on its engine."""
        assert isinstance(row, TrainingRow)
        return *super().notes_of(row), engine_note(row), update_note(row)

    def own_notes(self, row: Row) -> Sequence[str]:
        """Return the row's own notes, and how its search for the largest batch ended."""
        assert isinstance(row, TrainingRow)
        return *super().own_notes(row), self.search_note(row)

    def search_note(self, row: TrainingRow) -> str:
        """Say how the row's search for the largest batch ended, where no table of searches does."""
        return search_note(row) if len(self.searches) == 1 else ""

    @cached_property
    def searches(self) -> dict[str, SearchedBatch]:
        """The searches for the largest batch, by run id."""
        return {row.id: found for row in self.rows if (found := search_of(row))}

    def identity(self, row: Row) -> dict[str, Any]:
        """Return the row's identity with its batch, precision and sequence length."""
        assert isinstance(row, TrainingRow)
        batch = row.batch
        own = {
            "precision": row.comparison_key["precision"],
            "batch_micro": batch.micro,
            "batch_accumulation": batch.accumulation,
        }
        own |= {"batch_global": batch.global_, "seq_len": row.seq_len, "full_pretraining": row.fully_pretrained}
        return super().identity(row) | own

    def comparisons(self, row: Row) -> dict[str, Any]:
        """Return scaling, the prediction, loss over the baseline's, and speed over Naive's."""
        assert isinstance(row, TrainingRow)
        one, naive = self.converged.get(row.id), self.over_naive(row)
        low, high = (naive.interval if naive else None) or (None, None)
        shares = {
            f"{kind}_scaling_efficiency": (share.value if (share := self.efficiency(row, kind)) else None)
            for kind in KINDS
        }
        asked = budget_record(budget_of(row, self.training_budget)) if self.training_budget else {}
        return (
            shares
            | asked
            | predicted_values(row)
            | {
                "baseline_id": one and one.baseline_id,
                "loss_over_baseline": one and one.loss_over_baseline,
                "seconds_to_loss": one and one.seconds_to_loss,
                "speed_over_naive": naive and naive.value,
                "speed_over_naive_low": low,
                "speed_over_naive_high": high,
            }
        )

    @property
    def panels(self) -> list[Bars]:
        """Panels of speed and memory."""
        unit, divisor = memory_unit(self)
        label = (
            memory_header(self)
            .replace("peak", "peak allocated")
            .replace("state", "training state")
            .replace(unit, f"({unit} a rank)")
        )
        ours = [row.memory[1] / divisor if row.memory else None for row in self.rows]
        peaks = [self.beside.mark_of(row, "peak_allocated_bytes") for row in self.rows]
        published = [peak / divisor if peak else None for peak in peaks]
        return [*super().panels, Bars(label, ours, [None] * len(ours), published, [""] * len(ours), [""] * len(ours))]

    def label(self, row: Row) -> str:
        """Return the method with what else differs, marked where only parts of the model train."""
        assert isinstance(row, TrainingRow)
        return super().label(row) + PARTLY_TRAINED * row.partly_trained

    @property
    def tables(self) -> Sequence[ReportTable]:
        """The table of phases and modules of the profiled runs, if they fit beside each other."""
        runs = self.profiled
        modules = [module_table(runs, whole=False), limits_table(runs)] if 0 < len(runs) <= MOST_PROFILED else []
        return [
            *(self.asked_tables if self.target_loss else [*self.asked_tables, *equal_loss_tables(self.rows, None)]),
            *search_tables([(self.named(row), self.searches[row.id]) for row in self.rows if row.id in self.searches]),
            *modules,
            *super().tables,
        ]

    @property
    def asked_tables(self) -> Sequence[ReportTable]:
        """The cost of a training budget and of a loss; raises ConfigError where no run can say the first."""
        losses = equal_loss_tables(self.rows, self.target_loss) if self.target_loss else []
        if self.training_budget is None:
            return losses
        check_budget(self.rows, self.training_budget)
        return [budget_table(self.rows, [self.named(row) for row in self.rows], self.training_budget), *losses]

    @property
    def answers(self) -> list[str]:
        """The fastest, and which methods differ from Naive."""
        return [*super().answers, *self._beside_naive]

    @property
    def leaders(self) -> list[str]:
        """The fastest beside Naive, and which methods differ from it."""
        return [*super().leaders, *self._beside_naive]

    @property
    def _beside_naive(self) -> list[str]:
        return [f"{line[:1].upper()}{line[1:]}." for line in conclusion(self.comparable, self.named)]

    @property
    def charts(self) -> Sequence[Chart]:
        """Throughput and memory, batches, scaling and loss."""
        return list(training_charts(self))

    @property
    def drawn_as_charts(self) -> Sequence[str]:
        """The pictures of loss and scaling."""
        return ("loss", "scaling") if self.charts else ()

    @property
    def matrices(self) -> Sequence[Matrix]:
        """Methods beside models, and beside hardware."""
        return training_matrices(self)

    @cached_property
    def profiled(self) -> list[Profiled]:
        """The runs whose breakdowns can be shown, MOST_BARS at most."""
        # A breakdown is a file of its own, and more than MOST_BARS are never shown.
        found = ((row, breakdown_of(row)) for row in self.rows if row.state == RunStatus.SUCCESS)
        profiled = (
            Profiled(self.label(row), breakdown, step.mean if (step := row.metric("step_time_s")) else None)
            for row, breakdown in found
            if breakdown
        )
        return list(islice(profiled, MOST_BARS))

    def draw_more(self, path: Path) -> list[Path]:
        """Write the pictures beside the bars and return their paths."""
        from llmexp.training.report.pictures import draw_pictures

        return draw_pictures(self, path)

    @cached_property
    def _speeds(self) -> RelativeSpeeds:
        return RelativeSpeeds(self.rows)

    def over_naive(self, row: Row) -> RateRatio | None:
        """Return the speed relative to Naive with the same work in this table."""
        return self._speeds.over_naive(row)

    @property
    def first_engine(self) -> str:
        """The engine of the first row, which rows of other engines are compared with."""
        return self.shown(self.rows[0])["engine"] if self.rows else ""

    def over_first_engine(self, row: Row) -> RateRatio | None:
        """Return the speed relative to the first engine's run of the same method and work, where others have it too."""
        return self._speeds.over_first_engine(row)

    @cached_property
    def has_padding(self) -> bool:
        """Tell whether some row was measured with positions that hold no token."""
        rates = [(row.metric("real_tokens_per_s"), row.rate) for row in self.rows]
        return any(real and every and real.mean < every.mean for real, every in rates)

    @cached_property
    def converged(self) -> dict[str, Converged]:
        """The runs with a token budget beside their baselines, by run id."""
        return converged(self.rows)

    @cached_property
    def series(self) -> list[ScalingSeries]:
        """Series of rows that differ in their number of ranks."""
        return series_of(self.rows)

    def efficiency(self, row: TrainingRow, kind: Kind) -> RateRatio | None:
        """Return a row's scaling efficiency in its series of that kind; None where it is in none."""
        found = self._series_by_row.get((kind, id(row)))
        return found.efficiency_of(row) if found else None

    @cached_property
    def _series_by_row(self) -> dict[tuple[Kind, int], ScalingSeries]:
        found = [((series.kind, id(row)), series) for series in self.series for row in series.rows]
        return dict(reversed(found))
