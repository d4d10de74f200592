"""Times are exact to the nanosecond, whatever a profiler's clock and digits, against Python's own decimal numbers."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Decimal

import msgspec
import pytest

from llmexp.traces import times
from llmexp.traces.times import LARGEST_US, durations_ns, is_duration, is_time, nanoseconds

EPOCH_US = 1_790_857_163_625_258


def raw(*texts: str) -> list[msgspec.Raw]:
    return [msgspec.Raw(text.encode()) for text in texts]


def wanted(*texts: str) -> list[int]:
    return [int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_UP)) for text in texts]


def of_clock(begin_us: int, decimals: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [f"{begin_us + rng.randrange(10**6)}.{rng.randrange(10**decimals):0{decimals}}" for _ in range(300)]


@pytest.mark.parametrize(
    "texts",
    [
        of_clock(EPOCH_US, 3),
        of_clock(0, 3),
        of_clock(EPOCH_US, 1) + of_clock(EPOCH_US, 2),
        [*of_clock(EPOCH_US, 3), str(EPOCH_US), "0", "7", "0.5"],
        [str(EPOCH_US + number) for number in range(50)],
        [f"-{text}" for text in of_clock(0, 3)] + ["-0.25", "-3"],
        [*of_clock(4_578_163_665_929, 5), "0.0005", "1.4999999999999"],
        [str(LARGEST_US - 1), f"{LARGEST_US - 1}.999"],
        ["5.125"],
    ],
    ids=["epoch", "relative", "fewer decimals", "mixed", "whole", "negative", "more decimals", "largest", "one"],
)
def test_the_digits_of_all_profilers_are_read_many_at_once(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "_exactly", None)
    assert nanoseconds(raw(*texts)).tolist() == wanted(*texts)


def test_other_forms_of_numbers_are_read_one_by_one() -> None:
    texts = (f"{EPOCH_US}.125", "1.79e15", "2E3", "1e-3", "0.000000000000000000001", f"1.{'3' * 400}")
    assert nanoseconds(raw(*texts)).tolist() == [EPOCH_US * 1000 + 125, 179 * 10**16, 2_000_000, 1, 0, 1333]


@pytest.mark.parametrize(
    "text", ["null", '"5"', "[]", "{}", "true", "1e300", "9" * 400, str(LARGEST_US), f"-{LARGEST_US}.5", "1e999999999"]
)
def test_what_is_no_time_of_a_profiler_is_refused(text: str) -> None:
    assert not is_time(*raw(text))
    with pytest.raises(ValueError, match=r"is no number|us are too many"):
        nanoseconds(raw("1.500", text))


def test_no_times_have_no_nanoseconds() -> None:
    assert nanoseconds([]).tolist() == []
    assert durations_ns([]).tolist() == []


def test_durations_are_exact_too() -> None:
    rng = random.Random(2)
    texts = [f"{rng.randrange(4 * 10**12)}.{rng.randrange(1000):03}" for _ in range(300)]
    assert durations_ns([*map(float, texts)]).tolist() == wanted(*texts)
    assert durations_ns([None, 3, 0.0015, 1]).tolist() == [0, 3000, 2, 1000]
    assert durations_ns([5, 7]).tolist() == [5000, 7000]
    assert durations_ns([2**51, 0.5]).tolist() == [2**51 * 1000, 500]


@pytest.mark.parametrize("duration", ["1", [], 1e300, -1, float("nan")])
def test_what_is_no_duration_is_refused(duration: object) -> None:
    assert not is_duration(duration)
    assert is_duration(None)
    assert is_duration(1.5)
