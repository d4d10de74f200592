"""The share of a device's peak that products reach: measured on the card, else on its architecture, else typical."""

from __future__ import annotations

import pytest

from llmexp.serving.predict.rates import rates_of as serving_rates_of
from llmexp.training.predict.rates import CARRIED, constants, rates_of
from tests.planning import make_plan

SHARES, SUSTAINED = constants()["carried"]["products_share"], constants()["sustained_share"]


@pytest.mark.parametrize(
    ("card", "measured_on"),
    [
        ("rtx5090", "rtx5090"),
        ("l4", "l4"),
        ("l40s", "sm_89"),
        ("h100_pcie", "h100_pcie"),
        ("h100", "sm_90"),
        ("mi300x", "mi300x"),
    ],
)
def test_products_measured_on_a_card_come_before_those_of_its_architecture(card: str, measured_on: str) -> None:
    plan = make_plan(f"hardware={card}", "model=7b")
    rates, source = rates_of(plan)
    assert (rates.products_share, source) == (SHARES[measured_on] * SUSTAINED, CARRIED)


def test_a_card_without_measured_products_has_the_typical_share() -> None:
    share = rates_of(make_plan("hardware=a5000", "model=7b"))[0].products_share
    assert share == constants()["typical"]["products_share"] * SUSTAINED


def test_shares_that_were_fitted_to_training_are_those_of_training() -> None:
    fitted = constants()["hardware"]["a800"]["products_share"]
    assert rates_of(make_plan("hardware=a800", "model=7b"))[0].products_share == fitted


@pytest.mark.parametrize(("card", "kin"), [("h100_pcie", "h100"), ("l4", "l40s"), ("mi300x", "a5000")])
def test_products_in_fp8_of_a_card_differ_from_its_kin_as_those_in_16_bits(card: str, kin: str) -> None:
    one, other = (rates_of(make_plan(f"hardware={name}", "model=7b"))[0] for name in (card, kin))
    assert one.fp8_share / other.fp8_share == pytest.approx(one.products_share / other.products_share)


def test_servers_go_by_the_same_card() -> None:
    card, kin = (make_plan(f"hardware={name}", "model=7b").config.hardware for name in ("h100_pcie", "h100"))
    shares = [
        serving_rates_of(one, "bf16", "python", 1).flops_per_s / one.peak_flops_per_s["bf16"] for one in (card, kin)
    ]
    assert shares[0] / shares[1] == pytest.approx(SHARES["h100_pcie"] / SHARES["sm_90"])
