"""The paper's own tables, which are shown where no run answers them."""

from __future__ import annotations

import io

import pytest

from llmexp.errors import ConfigError
from llmexp.paper.printed import paper_cells
from llmexp.paper.views.as_printed import printed
from llmexp.paper.views.names import ROMAN
from llmexp.report.references.texts import print_views


def cells(name: str) -> dict[str, tuple[str, ...]]:
    return {column.header: column.cells for column in printed(name).table.columns}


def test_table_three_has_methods_as_lines_and_machines_as_columns() -> None:
    found = cells("table03")
    assert len(found["method"]) == 38
    assert (found["a800 tokens/s"][0], found["a800 GB"][0], found["4090 tokens/s"][0]) == ("7,488.3", "66.7 ? (a)", "-")
    place = found["method"].index("R+Z2+O")
    assert found["3090 tokens/s"][place].startswith("46.1 ? (")


def test_every_doubtful_cell_of_table_four_is_marked() -> None:
    marked = sum("?" in cell for column in printed("table04").table.columns for cell in column.cells)
    assert marked == sum(cell.doubtful for cell in paper_cells("IV")) > 10


@pytest.mark.parametrize("name", ROMAN.values())
def test_every_table_fits_100_columns(name) -> None:
    out = io.StringIO()
    print_views([printed(name)], "paper", out)
    table = [line for line in out.getvalue().splitlines() if line.startswith(" ")]
    assert len(table) > 3
    assert max(map(len, table)) <= 100


def test_other_tables_leave_out_what_is_the_same_in_every_line() -> None:
    view = printed("table06")
    assert [column.header for column in view.table.columns] == ["phase", "module", "time ms", "share of phase %"]
    assert "in every line: model 7B, hardware a800, batch size 2" in view.table.legend
    assert view.missing == ["python -m llmexp experiment=paper_table06"]


def test_a_figure_has_no_printed_values() -> None:
    with pytest.raises(ConfigError, match="figure 11 of the paper has no printed values"):
        printed("fig11")
