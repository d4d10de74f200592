"""Distributions at their ends, where shares are as near to 0 and 1 as a float can be."""

from __future__ import annotations

import pytest

from llmexp.serving.plan.length_distributions import Between, CutLognormal, Distribution, Listed

LOWEST, HIGHEST = 2**-53, 1 - 2**-53


@pytest.mark.parametrize(
    ("distribution", "least", "most"),
    [
        (Between(3, 9), 3, 9),
        (Between(1, 2**31), 1, 2**31),
        (CutLognormal(500, 0.8, 16, 2048), 16, 2048),
        (CutLognormal(2, 100.0, 1, 10**9), 1, 10**9),
        (CutLognormal(7, 1e-9, 1, 20), 7, 7),
        (Listed((8, 1, 5)), 8, 5),
    ],
)
def test_the_outermost_shares_have_the_outermost_lengths(distribution: Distribution, least: int, most: int) -> None:
    assert distribution.at(LOWEST) == least
    assert distribution.at(HIGHEST) <= distribution.longest
    assert distribution.at(HIGHEST) == pytest.approx(most, rel=0.02)


def test_the_mean_of_a_cut_lognormal_is_that_of_its_lengths() -> None:
    distribution, n = CutLognormal(500, 1.0, 100, 800), 10_000
    lengths = [distribution.at((place + 0.5) / n) for place in range(n)]
    assert sum(lengths) / n == pytest.approx(distribution.mean, abs=0.1)
    assert lengths == sorted(lengths)
