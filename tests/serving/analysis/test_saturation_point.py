import pytest

from llmexp.serving.analysis.saturation_point import RateAnswer, find_saturation, holds


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([(1, True), (8, False), (2, True), (4, True)], "between 4 and 8 requests/s"),
        ([(1, True), (8, True)], "at least 8 requests/s"),
        ([(1, False), (2, False)], "below 1 requests/s"),
        ([(1, True), (2, None), (4, False), (8, None)], "between 1 and 4 requests/s (2/s could not be judged)"),
        ([(1, None), (2, True), (4, None)], "at least 2 requests/s (4/s could not be judged)"),
        ([(0.5, None), (1, False)], "below 1 requests/s (0.5/s could not be judged)"),
        ([(1, None)], "unknown (1/s could not be judged)"),
        ([], "unknown"),
        (
            [(1, True), (2, False), (4, True), (8, False)],
            "between 1 and 2 requests/s; but 4/s held, though 2/s did not: measure these again",
        ),
        ([(1, False), (4, True)], "below 1 requests/s; but 4/s held, though 1/s did not: measure these again"),
    ],
)
def test_the_saturation_point_lies_between_what_held_and_what_did_not(answers: list[RateAnswer], said: str) -> None:
    assert str(find_saturation(answers)) == said


def test_a_rate_that_was_tried_again_goes_by_the_most_answers() -> None:
    assert find_saturation([(1, True), (2, False), (2, True), (2, True)]).low_per_s == 2
    tied = find_saturation([(1, True), (2, False), (2, True)])
    assert (tied.low_per_s, tied.high_per_s, tied.unknown_per_s) == (1, None, [2])
    assert find_saturation([(2, None), (2, True)]).low_per_s == 2


@pytest.mark.parametrize(
    ("load", "objective", "answer"),
    [
        ("kept_up", None, True),
        ("unknown", None, None),
        ("overloaded", None, False),
        ("kept_up", "kept", True),
        ("kept_up", "missed", False),
        ("kept_up", "unknown", None),
        ("unknown", "kept", None),
        ("unknown", "missed", False),
        ("overloaded", "kept", False),
    ],
)
def test_an_objective_that_was_kept_says_nothing_where_the_server_may_not_keep_up(
    load: str, objective: str | None, answer: bool | None
) -> None:
    assert holds(filter(None, [load, objective])) is answer
