"""Table IV: the largest batch that is known to fit, by a search or by batches of which one is too large."""

from __future__ import annotations

import pytest
from paper_runs import line, said, views

from llmexp.record.result import Batch

TABLE = "table04"


@pytest.fixture
def searched(on_a800):
    def search(method: str = "Naive", found: int = 4, speed: float = 1000.0, **changes):
        batch = {"micro": "max", "accumulation": 1, "search": "pow2"} | changes.pop("batch", {})
        folder = on_a800(method, speed=speed, batch=batch, **changes)
        result = folder.result()
        batch = Batch(micro=found, accumulation=1, **{"global": 8 * found})
        folder.write(folder.result_path, result.model_copy(update={"batch": batch}))
        return folder

    return search


def test_a_search_stands_with_its_batch_beside_the_papers(searched) -> None:
    (view,) = views(searched("Naive", found=8, speed=2 * 19348.3))
    assert view.name == TABLE
    found = line(view, "Naive")
    assert (found["batch"], found["paper batch"], found["tokens/s"], found["x paper"]) == ("8", "4", "38,700", "2.00")
    assert view.missing[0].startswith(
        "python -m llmexp experiment=paper_table04 model=7b hardware=a800 method=Z2,Z2+O,"
    )
    assert next(cell for cell in view.cells if cell["method"] == "Naive")["batch"] == 8


def test_a_search_of_which_not_even_1_fits_is_out_of_memory(searched) -> None:
    (view,) = views(searched("Z2", found=8), searched("Naive", found=1, speed=0))
    assert line(view, "Naive")["tokens/s"] == "-"


def test_of_fixed_batches_the_largest_stands_where_the_next_is_too_large(on_a800) -> None:
    fits = [on_a800("Naive", speed=100 * micro, batch__micro=micro) for micro in (1, 2, 4)]
    found = {view.name: view for view in views(*fits, on_a800("Naive", batch__micro=8))}
    assert line(found[TABLE], "Naive")["batch"] == "4"
    assert line(found[TABLE], "Naive")["x paper"] == f"{400 / 19348.3:.2f}"
    assert line(found["table03"], "Naive")["tokens/s"] == "100"


def test_without_a_batch_that_is_too_large_it_is_not_known_and_has_no_ratio(on_a800) -> None:
    found = {view.name: view for view in views(*(on_a800("Naive", speed=1, batch__micro=micro) for micro in (1, 2)))}
    told = line(found[TABLE], "Naive")
    assert (told["batch"], told["tokens/s"], told.get("x paper", "")) == ("≥ 2", "1.00 (a)", "")
    assert "(a) batch 2 fits, and no larger one was tried" in found[TABLE].table.legend


def test_a_gap_between_what_fits_and_what_does_not_is_said(on_a800) -> None:
    runs = [on_a800("Naive", speed=1), on_a800("Naive", batch__micro=16)]
    found = {view.name: view for view in views(*runs)}
    assert line(found[TABLE], "Naive")["batch"] == "≥ 1"
    assert "batch 16 does not fit, and nothing between was tried" in said(found[TABLE])


def test_a_search_comes_before_batches_that_end_open(on_a800, searched) -> None:
    fixed = [on_a800("Naive", speed=1, batch__micro=micro) for micro in (1, 2)]
    found = {view.name: view for view in views(*fixed, searched("Naive", found=4))}
    assert line(found[TABLE], "Naive")["batch"] == "4"
    ended = {view.name: view for view in views(searched("Naive", found=4, batch={"largest": 4}))}
    assert "the search ended at batch.largest=4" in said(ended[TABLE])


def test_one_batch_that_fits_says_nothing_of_the_largest(on_a800) -> None:
    assert [view.name for view in views(on_a800("Naive", speed=1))] == ["table03"]
    assert [view.name for view in views(on_a800("Naive", speed=1), on_a800("Z2"))] == ["table03"]


def test_the_papers_batches_that_were_not_the_largest_are_doubtful(searched) -> None:
    small = {"hardware__name": "rtx4090", "hardware__memory_bytes": 25769803776}
    (view,) = views(searched("F+Z3", found=2, speed=300, **small))
    assert line(view, "F+Z3")["paper tokens/s"].startswith("154.2 ? (")
    assert "the batch does not look maximized" in said(view)


def test_a_limit_of_memory_is_said_beside_what_was_measured_against_it(searched) -> None:
    folder = searched("Naive", found=4, sweep__name="paper_table04", model__name="tiny")
    folder.write(folder.result_path, folder.result().model_copy(update={"evidence": "emulated"}))
    (view,) = views(folder)
    assert line(view, "Naive")["tokens/s"] == "1,000 (a)"
    assert "1 emulated" in said(view)
    assert "(a) measured against a limit of memory that stands for a smaller device" in view.table.legend
