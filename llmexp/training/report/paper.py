"""A row beside the paper's cell of the same work: the ratio, and notes on either."""

from __future__ import annotations

from llmexp.report.ratio import RateRatio
from llmexp.training.report.row import TrainingRow
from llmexp.training.report.scaling_series import paper_of


def over_paper(row: TrainingRow) -> RateRatio | None:
    """Return tokens/s over the paper's; None where either is missing or the paper measured something else."""
    paper = row.paper
    return (
        RateRatio(row, paper.tokens_per_s)
        if row.rate and paper and paper.tokens_per_s and not row.unlike_paper
        else None
    )


def paper_note(row: TrainingRow) -> str:
    """Return what is doubtful or odd in the paper's cell."""
    return f"paper, table {row.paper.table}: {row.paper.remark}" if row.paper and row.paper.remark else ""


def unlike_note(row: TrainingRow) -> str:
    """Say why a measured run has no ratio to the paper's cell."""
    compared = row.paper and not row.paper.oom and row.rate
    return f"no ratio: the paper's cell is not of {row.unlike_paper}" if compared and row.unlike_paper else ""


def scaling_note(row: TrainingRow) -> str:
    """Return what the paper says of its own scaling figure."""
    paper = paper_of(row)
    return f"paper, figure 4: {paper.note}" if paper and paper.note else ""
