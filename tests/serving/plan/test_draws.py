from __future__ import annotations

from statistics import fmean, pstdev

from llmexp.serving.plan.draws import DrawSeries, scaled

SERIES = DrawSeries(seed=7, point=2)


def test_numbers_are_the_same_in_every_version_and_on_every_machine() -> None:
    # What `printf point/7/2/prompt/5/0 | openssl dgst -shake128 -xoflen 16` prints.
    printed = bytes.fromhex("b5ca27a48d1e448faab40bdf9ae5ed11")
    by_hand = tuple(int.from_bytes(part, "little") for part in (printed[:8], printed[8:]))
    assert SERIES.numbers("prompt", (5, 0), 2) == by_hand


def test_more_numbers_begin_with_the_fewer() -> None:
    assert SERIES.numbers("prompt", (1,), 9)[:4] == SERIES.numbers("prompt", (1,), 4)


def test_every_place_has_numbers_of_its_own() -> None:
    others = [
        DrawSeries(8, 2),
        DrawSeries(7, 3),
        DrawSeries(7, 2, is_warmup=True),
        DrawSeries(72, 0),
        DrawSeries(7, 20),
    ]
    places = [("prompt", (1, 0)), ("prompt", (1, 1)), ("prompt", (11,)), ("block", (1, 0))]
    drawn = [one.numbers("prompt", (1, 0), 1) for one in others] + [SERIES.numbers(*place, 1) for place in places]
    assert len(set(drawn)) == len(drawn)


def test_shares_lie_evenly_between_0_and_1() -> None:
    shares = [SERIES.share("any", (place,)) for place in range(10_000)]
    assert 0 < min(shares) < 0.002
    assert 0.998 < max(shares) < 1
    # Mean and deviation of the uniform distribution, with four standard errors of 10,000 draws.
    assert abs(fmean(shares) - 1 / 2) < 4 * 0.2887 / 100
    assert abs(pstdev(shares) - 0.2887) < 4 * 0.0013


def test_the_outermost_numbers_stay_inside() -> None:
    assert scaled((0, 2**64 - 1), 3) == [0, 2]
    assert {SERIES.below(3, "which", (place,)) for place in range(50)} == {0, 1, 2}
