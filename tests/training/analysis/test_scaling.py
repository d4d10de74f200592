import pytest

from llmexp.training.analysis.scaling import efficiency


@pytest.mark.parametrize(
    ("rate", "ranks", "least", "share"),
    [
        (100.0, 1, (100.0, 1), 1.0),
        (180.0, 2, (100.0, 1), 0.9),
        (700.0, 8, (200.0, 2), 0.875),
        (90.0, 2, (100.0, 1), 0.45),
    ],
)
def test_what_every_rank_adds_over_what_those_of_the_fewest_do(rate, ranks, least, share):
    assert efficiency(rate, ranks, *least) == pytest.approx(share)
