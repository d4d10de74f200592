from __future__ import annotations

from llmexp.analysis.inference import Estimate
from llmexp.report.columns import ReportTable
from llmexp.training.analysis.batch_gain import BatchGain
from llmexp.training.report.search_table import search_tables
from llmexp.training.report.searched_batch import SearchedBatch

PAYS = BatchGain(2, 4, Estimate(0.5, 0.01, 4))
SATURATED = BatchGain(2, 4, Estimate(0.0, 0.001, 4))
VAGUE = BatchGain(2, 4, Estimate(0.5, 1.0, 1))


def table(**changes: object) -> ReportTable:
    found = {"largest": 4, "fits": 2, "tries": 2, "too_large": 8, "tokens_per_s": {2: 100.0, 4: 165.0}, "gain": PAYS}
    (shown,) = search_tables([("F", SearchedBatch(**found | changes)), ("R", SearchedBatch(**found))])
    return shown


def cells(shown: ReportTable) -> dict[str, str]:
    return {column.header: column.cells[0] for column in shown.columns}


def test_a_line_says_what_fits_what_does_not_and_what_is_fastest() -> None:
    shown = cells(table())
    assert list(shown.values())[:7] == ["F", "4", "2 of 2", "8", "4", "165", "165"]
    assert shown["a doubling brings"].startswith("+64.9% (")
    assert shown["with more memory"] == "faster"


def test_a_smaller_batch_may_be_the_fastest() -> None:
    shown = cells(table(tokens_per_s={2: 180.0, 4: 165.0}, gain=SATURATED))
    assert (shown["fastest batch"], shown["tokens/s of fastest"], shown["of largest"]) == ("2", "180", "165")
    assert shown["with more memory"] == "hardly faster"


def test_what_cannot_be_told_is_a_question_mark() -> None:
    for gain in (None, VAGUE):
        shown = cells(table(gain=gain))
        assert (shown["a doubling brings"], shown["with more memory"]) == ("?", "?")


def test_where_nothing_fits_or_nothing_failed_the_cells_say_so() -> None:
    shown = cells(table(largest=1, fits=0, too_large=None, tokens_per_s={}, gain=None))
    assert list(shown.values())[:7] == ["F", "none", "0 of 2", "", "", "", ""]


def test_a_single_search_has_no_table() -> None:
    assert search_tables([("F", SearchedBatch(4, 2, 2, 8, {4: 165.0}, None))]) == []
