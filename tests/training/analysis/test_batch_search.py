import random
from collections.abc import Callable

import pytest

from llmexp.training.analysis.batch_search import BatchSearch, LargestBatch, Probe


def run(search: BatchSearch, fits: Callable[[int], bool]) -> tuple[LargestBatch, list[Probe]]:
    probes: list[Probe] = []
    while isinstance(step := search.step(probes), int):
        probes.append((step, fits(step)))
        assert len(probes) < 100
    return step, probes


@pytest.mark.parametrize("start", [1, 3, 8, 200])
@pytest.mark.parametrize("limit", [1, 2, 7, 8, 100])
def test_bisection_finds_the_limit_from_wherever_it_starts(start: int, limit: int) -> None:
    assert run(BatchSearch(start), lambda micro: micro <= limit)[0] == LargestBatch(limit, limit + 1)


@pytest.mark.parametrize("start", [1, 3, 8, 200])
@pytest.mark.parametrize(("limit", "found"), [(1, 1), (7, 4), (8, 8), (100, 64)])
def test_powers_of_two_alone_are_tried(start: int, limit: int, found: int) -> None:
    end, probes = run(BatchSearch(start, "pow2"), lambda micro: micro <= limit)
    assert end == LargestBatch(found, 2 * found)
    assert {micro.bit_count() for micro, _ in probes} == {1}


def test_it_doubles_then_bisects_and_then_confirms() -> None:
    probes = run(BatchSearch(2), lambda micro: micro <= 11)[1]
    assert [micro for micro, _ in probes] == [2, 4, 8, 16, 12, 10, 11, 11]


def test_not_even_one_sequence_fits() -> None:
    assert run(BatchSearch(4), lambda micro: False) == (LargestBatch(None, 1), [(4, False), (2, False), (1, False)])


@pytest.mark.parametrize(("search", "found"), [("bisect", 20), ("pow2", 16)])
def test_no_batch_above_the_largest_allowed_is_tried(search: str, found: int) -> None:
    end, probes = run(BatchSearch(64, search, largest=20), lambda micro: True)  # type: ignore[arg-type]
    assert end == LargestBatch(found, None)
    assert max(micro for micro, _ in probes) == found


def test_a_batch_that_fitted_by_luck_is_given_up() -> None:
    answers = {8: iter([True, False, False])}
    end, probes = run(BatchSearch(4), lambda micro: next(answers[8]) if micro == 8 else micro < 8)
    assert end == LargestBatch(7, 8)
    assert probes.count((8, False)) == 2


def test_an_interrupted_search_goes_on_whatever_the_order_of_its_records() -> None:
    search = BatchSearch(2)
    whole = run(search, lambda micro: micro <= 11)[1]
    for done in range(len(whole)):
        assert search.step(whole[:done]) == search.step(whole[:done][::-1]) == whole[done][0]


def test_an_answer_that_fits_one_time_in_five_is_rarely_confirmed() -> None:
    """The first try has to fit, then one of two: 0.2 * (1 - 0.8 ** 2) = 7.2 % by that arithmetic."""
    chance = random.Random(0)
    ends = [run(BatchSearch(8), lambda micro: micro < 9 or (micro == 9 and chance.random() < 0.2)) for _ in range(2000)]
    assert 0.05 < sum(end.micro == 9 for end, _ in ends) / len(ends) < 0.095
    assert all(end.micro in (8, 9) for end, _ in ends)


def test_bounds_that_no_answer_could_keep_are_refused() -> None:
    for wrong in ({"start": 0}, {"start": 1, "largest": 0}, {"start": 1, "fits": 4}):
        with pytest.raises(ValueError, match=r"can't fit|1 sequence or more"):
            BatchSearch(**wrong)
