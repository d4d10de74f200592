import pytest

from benchmarks.trust_memory import AGREES, FITTED, OUT_OF_MEMORY, SEARCHED, TASKS, TWICE, UNSEARCHED, checks
from llmexp.training.plan import activations, fit


def right(table: str, *sayings: str) -> float:
    """The share of verdicts in percent that agree with the table's cells of these kinds."""
    found = [check.right for check in checks(table) if check.said in sayings]
    print(f"table{table}: {sum(found)} of {len(found)} agree ({', '.join(sayings)})")
    return 100 * sum(found) / len(found)


@pytest.mark.parametrize("table", TASKS)
def test_the_plans_verdict_on_memory_agrees_with_nine_tenths_of_the_papers_batches(table):
    assert right(table, FITTED, OUT_OF_MEMORY, TWICE) >= AGREES


def test_cells_that_were_not_searched_to_their_end_are_named_and_few():
    untried = [check.cell for check in checks(SEARCHED) if check.said == UNSEARCHED]
    assert len(untried) == 31
    assert sum("a800 batch 128" in cell for cell in untried) == 19


@pytest.mark.parametrize("factor", [0.0, 3.0])
def test_with_far_fewer_or_far_more_activations_it_would_not_agree(factor, monkeypatch):
    def wrong(*args: object) -> activations.Activations:
        made = activations.activations(*args)  # type: ignore[arg-type]
        return activations.Activations(round(factor * made.kept), round(factor * made.passing))

    monkeypatch.setattr(fit, "activations", wrong)
    assert right(SEARCHED, FITTED, OUT_OF_MEMORY, TWICE) < AGREES
