import pytest

from llmexp.record.digits import rounded, three_digits, with_deviation


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (15517.9, "15,500"),
        (999.7, "1,000"),
        (99.96, "100"),
        (41.86, "41.9"),
        (1.0, "1.00"),
        (0.01234, "0.0123"),
        (0.0, "0"),
        (1.234e-8, "1.23e-08"),
        (-2345.6, "-2,350"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_three_significant_digits(value, text):
    assert rounded(value) == text


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (1234.5, ",.2f", "1,230"),
        (12.345, ",.2f", "12.3"),
        (0.5, ",.2f", "0.50"),
        (0.001234, ",.2f", "0.00123"),
        (0.0, ",.2f", "0.00"),
        (1234.5, "g", "1,230"),
        (0.5, "g", "0.500"),
        (0.1234, ".1%", "12.3%"),
    ],
)
def test_a_form_has_three_significant_digits_at_most_and_never_none(value, form, text):
    assert three_digits(value, form) == text


@pytest.mark.parametrize(
    ("value", "deviation", "text"),
    [
        (4412.6, 965.5, "4,410 ± 970"),
        (15517.9, 387.5, "15,500 ± 400"),
        (7488.3, 0.07, "7,490 ± 0.07"),
        (1.07, 0.17, "1.07 ± 0.17"),
        (0.0593, 0.00031, "0.0593 ± 0.0003"),
        (12.0, 0.0, "12.0 ± 0.0"),
        (100.0, float("inf"), "100 ± inf"),
    ],
)
def test_a_deviation_ends_where_its_number_ends(value, deviation, text):
    assert with_deviation(value, deviation) == text
