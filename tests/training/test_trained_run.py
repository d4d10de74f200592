from math import nan

import pytest

from llmexp.analysis.sameness import same_training, where_asked
from llmexp.dtypes import FORMATS, of_parameters
from llmexp.training.trained_run import TrainedRun


def did(**changes) -> TrainedRun:
    known = {
        "requested": {"seed": "0"},
        "parameters_in": "fp32",
        "losses": [6.0, 5.0],
        "sequences": ["0a", "0b"],
        "products_in": "fp32",
        "gradient_norm": 2.0,
        "largest_update": 1e-3,
    }
    return TrainedRun.model_validate(known | changes)


@pytest.mark.parametrize("dtype", of_parameters())
def test_what_orders_of_summation_differ_by_is_the_same_training(dtype):
    loss, norm = 1 + FORMATS[dtype].losses_within / 2, 1 + (FORMATS[dtype].norms_within - 1) / 2
    one = did(parameters_in=dtype)
    other = did(parameters_in=dtype, losses=[6.0, 5.0 * loss], gradient_norm=2.0 * norm, largest_update=2e-3)
    assert same_training(one, other).answer == "same"
    assert same_training(other, one).answer == "same"


@pytest.mark.parametrize("dtype", of_parameters())
@pytest.mark.parametrize("quantity", ["losses", "gradient_norm"])
def test_what_is_beyond_is_another(dtype, quantity):
    loss, norm = 1 + 2 * FORMATS[dtype].losses_within, 1 + 2 * (FORMATS[dtype].norms_within - 1)
    changed = {"losses": [6.0, 5.0 * loss]} if quantity == "losses" else {"gradient_norm": 2.0 * norm}
    assert same_training(did(parameters_in=dtype), did(parameters_in=dtype, **changed)).answer == "different"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"sequences": ["0b", "0a"]}, "step 0 read other sequences"),
        ({"sequences": ["0a", "0c"]}, "step 1 read other sequences"),
        ({"products_in": "bf16"}, "matrix products ran in fp32 and bf16"),
        ({"losses": [6.0, nan]}, "the losses of the first steps are up to inf% apart"),
        ({"largest_update": 0.0}, "the first step changes a parameter by 0.001 and 0 at most"),
        ({"largest_update": 5e-3}, "the first step changes a parameter by 0.001 and 0.005 at most"),
    ],
)
def test_the_reason_names_what_differs(changed, why):
    found = same_training(did(), did(**changed))
    assert (found.answer, found.reason) == ("different", why)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"sequences": []},
            "losses agree, as those of random tokens do, and a run did not record which sequences it read",
        ),
        ({"largest_update": None}, "losses agree, as they would without any update, and no update was recorded"),
        ({"losses": []}, "a run kept no losses of its steps"),
        ({"draws": "adapter.dropout=0.1 draws at random", "losses": [9.0, 9.0]}, "adapter.dropout=0.1 draws at random"),
    ],
)
def test_without_evidence_nobody_can_tell(changed, why):
    found = same_training(did(**changed), did())
    assert (found.answer, found.reason) == ("unknown", why)


def test_two_runs_that_change_nothing_prove_nothing():
    assert same_training(did(largest_update=0.0), did(largest_update=0.0)).answer == "unknown"


def test_only_runs_that_were_asked_for_the_same_are_judged():
    assert where_asked(did(), did(requested={"seed": "1"}, losses=[9.0])) is None
    assert where_asked(None, None) is None
    unknown = where_asked(None, did())
    assert unknown
    assert unknown.answer == "unknown"


@pytest.mark.parametrize(("dtype", "factor", "answer"), [("fp32", 2.0, "different"), ("bf16", 1.25, "same")])
def test_the_first_update_of_adamw_is_as_large_for_every_element(dtype, factor, answer):
    one = did(requested={"optimizer.name": "adamw"}, parameters_in=dtype)
    assert same_training(one, one.model_copy(update={"largest_update": factor * 1e-3})).answer == answer
    other = did(parameters_in=dtype)
    assert same_training(other, other.model_copy(update={"largest_update": factor * 1e-3})).answer == "same"
