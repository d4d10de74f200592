from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from llmexp.paper.claims.claims import paper_claims
from llmexp.paper.claims.rows import paper_rows
from llmexp.paper.printed.findings import published_claims
from llmexp.report.findings.claims import Claim, Undecided
from llmexp.report.findings.rows import ClaimRow, RowFigure
from llmexp.report.findings.verdict import CANNOT_TELL

PUBLISHED = {claim.name: claim for claim in published_claims()}
DECIDED = [claim for claim in paper_claims() if PUBLISHED[claim.id].verdict != CANNOT_TELL]
OF_RUNS = [claim for claim in paper_claims() if isinstance(claim, Claim) and claim not in DECIDED]
# Claims whose verdict by their function differs from findings.csv; docs/paper.md would argue each.
ARGUED: dict[str, str] = {}
FACTORS = (0.001, 0.01, 0.1, 0.5, 0.9, 1.1, 2.0, 10.0, 100.0, 1000.0)
FINE = tuple(1.0006**step for step in range(-2400, 2400))


@pytest.mark.parametrize("claim", paper_claims(), ids=lambda claim: claim.id)
def test_the_verdict_on_the_papers_cells_is_that_of_findings_csv(claim) -> None:
    assert claim.answer(paper_rows()).verdict == ARGUED.get(claim.id, PUBLISHED[claim.id].verdict)


def test_a_larger_batch_is_judged_by_the_papers_cells_of_deepspeed_alone() -> None:
    # Megatron's batches of table II are another claim's, and its batch of 32 may be the global one.
    [claim] = (claim for claim in paper_claims() if claim.id == "S27")
    assert isinstance(claim, Claim)
    answer = claim.answer(paper_rows())
    assert "in 80 of 80 pairs (1.84 to 55.1)" in answer.numbers
    assert {row.table for row in answer.used} == {"III", "IV"}


def test_every_claim_that_a_table_can_decide_is_decided() -> None:
    assert all(isinstance(claim, Claim) for claim in DECIDED)
    assert (len(DECIDED), len(OF_RUNS), len(paper_claims())) == (80, 29, 112)


def test_what_neither_tables_nor_runs_decide_has_its_reason() -> None:
    reasons = {claim.id: claim.why for claim in paper_claims() if isinstance(claim, Undecided)}
    assert set(reasons) == {"S43", "S60", "S97"}
    assert all(len(why) > 40 for why in reasons.values())


@pytest.mark.parametrize("claim", DECIDED, ids=lambda claim: claim.id)
def test_the_rows_that_a_claim_names_decide_it_alone(claim) -> None:
    answer = claim.answer(paper_rows())
    again = claim.answer(answer.used)
    assert again.verdict == answer.verdict
    assert set(again.used) == set(answer.used)


@pytest.mark.parametrize("claim", DECIDED, ids=lambda claim: claim.id)
def test_other_figures_in_the_deciding_cells_give_another_verdict(claim) -> None:
    answer = claim.answer(paper_rows())
    verdicts = (claim.answer(changed).verdict for changed in _changed(answer.used))
    assert any(verdict not in (answer.verdict, CANNOT_TELL) for verdict in verdicts)


@pytest.mark.parametrize("claim", DECIDED, ids=lambda claim: claim.id)
def test_without_its_cells_no_claim_is_decided(claim) -> None:
    used = claim.answer(paper_rows()).used
    # DeepSpeed's two cells of table II repeat cells of III and IV, and stand in where those are missing.
    gone = {*used, *(row for row in paper_rows() if row.label.startswith("DeepSpeed"))}
    assert claim.answer([row for row in paper_rows() if row not in gone]).verdict == CANNOT_TELL


def _changed(rows: Sequence[ClaimRow]) -> Iterator[list[ClaimRow]]:
    """Yield the rows with what is in some of them changed: whether they fit, and by how much one figure is larger.

    Then the same where that figure is equal in all rows, and by small steps.
    """
    names = sorted({name for row in rows for name in row.values})
    groups = _groups(rows)
    for group in groups:
        yield [_turned(row) if row in group else row for row in rows]
    level = [replace(row, values=dict.fromkeys(row.values, RowFigure.exact(1.0))) for row in rows]
    for factors, begin in ((FACTORS, rows), (FACTORS, level), (FINE, rows)):
        for group in groups:
            for name in names:
                for factor in factors:
                    yield [
                        _scaled(row, name, factor) if old in group else row
                        for old, row in zip(rows, begin, strict=True)
                    ]


def _turned(row: ClaimRow) -> ClaimRow:
    return replace(row, oom=not row.oom, values={"batch": RowFigure.exact(1)} if row.oom else {})


def _groups(rows: Sequence[ClaimRow]) -> list[set[ClaimRow]]:
    singles = [{row} for row in rows[:8]]
    properties = [{(row.table, row.engine), *row.method, *row.platform, row.model, *row.batches} for row in rows]
    shared = [
        {row for row, own in zip(rows, properties, strict=True) if each in own}
        for each in sorted(set().union(*properties), key=str)
    ]
    return singles + shared


def _scaled(row: ClaimRow, name: str, factor: float) -> ClaimRow:
    if name not in row.values:
        return row
    return replace(row, values={**row.values, name: RowFigure.exact(row.values[name].value * factor)})


def test_a_doubtful_cell_that_decides_is_named() -> None:
    doubts = {claim.id: [row.label for row in claim.answer(paper_rows()).used if row.doubt] for claim in DECIDED}
    assert "13B R+Z2+O a800" in doubts["S25"]
    assert doubts["S15"] == ["7B Naive a800"]
    assert doubts["S28"] == []
