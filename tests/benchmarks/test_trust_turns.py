"""What is said of two sides holds in a few simulated tries; `python -m benchmarks trust` has the rates."""

import pytest

from benchmarks.trust_turns import NOISES, QUIET, Answers, Compared, bimodal, in_turns, independent, of_sets

TRIES = 100


def alarms(found: Answers) -> int:
    return sum(bool({"lower", "higher"} & set(answers)) for answers in found)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_sides_in_turns_that_are_equal_are_not_called_different(noise) -> None:
    # Of 100 tries at 5 % hardly ever are more than 12 false.
    assert alarms(in_turns(Compared(8, 5, noise), TRIES)) <= 12


def test_rows_that_vary_more_than_the_control_are_not_called_different() -> None:
    # The control by itself would let some 15 of 100 pass for different.
    assert alarms(in_turns(Compared(8, 3, bimodal, first_share=QUIET), TRIES)) <= 5


@pytest.mark.parametrize("name", ["a state that lasts for a run", "correlation 0.8", "a drift of 10 %"])
def test_the_simulation_sees_what_is_wrong_with_two_sets(name) -> None:
    assert alarms(of_sets(Compared(8, 5, NOISES[name]), TRIES)) > 30


def test_a_large_slowdown_of_one_row_is_found_and_no_other_row_is_blamed() -> None:
    found = in_turns(Compared(8, 5, independent, slower=1, speed=0.5), TRIES)
    assert sum(answers[0] == "lower" for answers in found) > 80
    assert alarms([answers[1:] for answers in found]) <= 12
