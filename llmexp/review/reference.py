"""The review as a published reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmexp.report.references.beside import Beside
from llmexp.report.references.reference import Reference
from llmexp.report.references.view import View

if TYPE_CHECKING:
    from llmexp.report.section import ReportSection


class Review(Reference):
    """Achieving Peak Performance for Large Language Models: A Systematic Review."""

    name = "review"
    title = "the review"
    heading = "Beside the review's case studies"
    view_names = ("sparsegpt", "qmoe")
    example = "sparsegpt"
    first_runs = "python -m llmexp experiment=compress_case_studies makes those of both case studies"

    def beside(self, section: ReportSection) -> Beside:
        """Return the case studies that runs of task=compress are near to."""
        if section.rows[0].plan.config.task.name != "compress":
            return Beside()
        from llmexp.review.case_studies import CaseStudiesBeside

        return CaseStudiesBeside(section.rows)

    def as_published(self, view: str) -> View:
        """Return what the review prints of a case study."""
        from llmexp.review.case_studies import view_of

        return view_of(view, ())


REVIEW = Review()
