"""The paper's tables of where time goes, as figures: nothing printed is lost, and doubts are kept."""

from __future__ import annotations

import pytest

from llmexp.paper.printed import read_table
from llmexp.paper.printed.breakdowns import DECODER_MODULES, REST, breakdown_tables, decoder_shares

TABLES = {table.number: table for table in breakdown_tables()}


@pytest.mark.parametrize(
    ("number", "name", "time", "factor", "share"),
    [
        ("V", "table05_phase_time_bs2", "overall_ms", 1, "share_of_step_percent"),
        ("VI", "table06_module_time_bs2", "time_ms", 1, "share_of_phase_percent"),
        ("VII", "table07_phase_time_bs32_recompute", "overall_ms", 1, "share_of_step_percent"),
        ("VIII", "table08_flashattention_module", "attention_ms", 1, "improvement_percent"),
        ("XIII", "table13_gemm_share", "", 1, "gemm_share_percent"),
        ("XIV", "table14_memory_copy", "time_s_per_iteration", 1000, "share_percent"),
        ("XV", "table15_allreduce", "time_s_per_iteration", 1000, "share_percent"),
        ("XVI", "table16_communication", "time_s_per_iteration", 1000, "share_percent"),
    ],
)
def test_every_printed_figure_is_in_its_table_with_its_note(number, name, time, factor, share) -> None:
    rows = read_table(name)
    kept = [
        figure
        for figure in TABLES[number].figures
        if REST not in figure.labels and "computing" not in figure.labels[-1]
    ]
    assert [figure.percent for figure in kept] == [float(row[share]) if row[share] else None for row in rows]
    assert [figure.note for figure in kept] == [row["note"] for row in rows]
    if time:
        assert [figure.time_ms for figure in kept] == pytest.approx([factor * float(row[time]) for row in rows])


def test_what_the_printed_shares_leave_is_the_rest() -> None:
    rest = {figure.labels: figure.percent for figure in TABLES["VI"].figures if REST in figure.labels}
    assert rest == {("forward", REST): pytest.approx(11.86), ("backward", REST): pytest.approx(4.6)}


@pytest.mark.parametrize(
    ("number", "labels", "why"),
    [
        ("VII", ("backward", "whole, % of step"), "footnote is missing"),
        ("XIII", ("Naive", "backward"), "60.8%"),
        ("XIV", ("ZeRO-2", "7B"), "Table XVI: 10.18 s"),
        ("XV", ("R",), "3.6x"),
        ("XVI", ("ZeRO-3", "13B"), "less than ZeRO-2"),
    ],
)
def test_a_figure_that_the_readme_doubts_says_so(number, labels, why) -> None:
    (figure,) = (figure for figure in TABLES[number].figures if figure.labels == labels)
    assert figure.remark.startswith("doubt:")
    assert why in figure.remark


def test_a_figure_without_a_doubt_has_no_remark() -> None:
    mlp = next(figure for figure in TABLES["VI"].figures if figure.labels == ("forward", "MLP"))
    assert (mlp.note, mlp.remark) == ("holds three GEMMs and the SiLU", "")


def test_the_shares_of_figure_5_are_those_of_table_vi_and_add_up() -> None:
    shares = decoder_shares()
    for phase in ("forward", "backward"):
        assert sum(shares[phase, module] for module in DECODER_MODULES) == pytest.approx(100)
    assert shares["forward", "MLP"] == pytest.approx(100 * 29.06 / 65.09, abs=0.01)
