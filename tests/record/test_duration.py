import pytest

from llmexp.record.duration import duration, limit


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.52, "0.52 s"),
        (1.5, "1.5 s"),
        (9.96, "10 s"),
        (14.4, "14 s"),
        (59.7, "1 min"),
        (146, "2 min 26 s"),
        (3599.6, "1 h"),
        (3600 + 29, "1 h"),
        (13 * 3600 + 36 * 60, "13 h 36 min"),
        (86_399, "24 h"),
        (3 * 86_400 + 4 * 3600, "3 d 4 h"),
    ],
)
def test_times_are_in_the_two_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_limit_is_as_it_is_typed_and_a_long_one_in_words_too() -> None:
    assert limit("measure.timeout_s", 1.5) == "measure.timeout_s=1.5"
    assert limit("measure.timeout_s", 7200.0) == "measure.timeout_s=7200 (2 h)"
