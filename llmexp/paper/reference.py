"""The paper as a published reference."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from llmexp.paper.views.names import TITLES, experiment_of, name_of
from llmexp.record.plan import RunPlan
from llmexp.report.references.beside import Beside
from llmexp.report.references.reference import Reference
from llmexp.report.references.view import View

if TYPE_CHECKING:
    from llmexp.report.findings.claims import Claim, Undecided
    from llmexp.report.findings.rows import ClaimRow
    from llmexp.report.row import Row
    from llmexp.report.section import ReportSection

# What stands beside the runs of a task; a report of one task imports the rest of no other.
_TRAINING = "llmexp.paper.training.beside:TrainingBeside"
_BESIDE = {
    "pretrain": _TRAINING,
    "finetune": _TRAINING,
    "serve": "llmexp.paper.serving.beside:ServingBeside",
    "micro": "llmexp.paper.micro.beside:MicroBeside",
}


class Paper(Reference):
    """Dissecting the Runtime Performance of the Training, Fine-tuning, and Inference of Large Language Models."""

    name = "paper"
    title = "the paper"
    heading = "Beside the paper, arXiv 2311.03687"
    view_names = tuple(TITLES)
    example = "table03"
    first_runs = f"python -m llmexp experiment={experiment_of(example)} makes those of table III"

    def published_rate(self, plan: RunPlan) -> float | None:
        """Return the tokens/s of the paper's cell of this very run; None also where the paper ran out of memory."""
        from llmexp.paper.training.published import published_rate

        return published_rate(plan)

    def published_speed(self, plan: RunPlan) -> tuple[float, str] | None:
        """Return the tokens/s a GPU of the paper's cell with the nearest batch, and which cell that is."""
        from llmexp.paper.training.published import published_speed

        return published_speed(plan)

    def beside(self, section: ReportSection) -> Beside:
        """Return what stands beside the runs of a task that the paper has measured too."""
        place = _BESIDE.get(section.rows[0].plan.config.task.name)
        if not place:
            return Beside()
        module, _, name = place.partition(":")
        make: Callable[[ReportSection], Beside] = getattr(import_module(module), name)
        return make(section)

    def of_all_runs(self, rows: Sequence[Row], asked: Container[str]) -> Sequence[View]:
        """Return table I, with the machines of the runs."""
        from llmexp.paper.machines import NAME, machines_view

        return [machines_view(rows)] if NAME in asked else []

    def view_named(self, word: str) -> str | None:
        """Return the name that a word such as table3, fig4 or IV means."""
        return name_of(word)

    def as_published(self, view: str) -> View:
        """Return a table as the paper prints it; raises ConfigError for a figure, whose values it omits."""
        from llmexp.paper.views.as_printed import printed

        return printed(view)

    def claims(self) -> Sequence[Claim | Undecided]:
        """Return the paper's claims in its order."""
        from llmexp.paper.claims.claims import paper_claims

        return paper_claims()

    def claim_rows(self) -> Sequence[ClaimRow]:
        """Return every cell of tables II to XVI."""
        from llmexp.paper.claims.rows import paper_rows

        return paper_rows()


PAPER = Paper()
