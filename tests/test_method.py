from __future__ import annotations

import itertools

import pytest

from llmexp.errors import ConfigError
from llmexp.method import ATOMS, Method, Techniques, describe


@pytest.mark.parametrize("order", list(itertools.permutations(["F", "r", "Z3", "o"])))
def test_any_order_and_case_is_one_method(order):
    assert str(Method.parse("+".join(order))) == "F+R+Z3+O"


@pytest.mark.parametrize("text", ["Naive", "naive", " NAIVE "])
def test_naive_sets_nothing(text):
    assert str(Method.parse(text)) == "Naive"
    assert Method.parse(text).techniques == Techniques()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("+", "is empty"),
        ("F++R", r"did you mean F\+R\?"),
        ("F+R+", r"did you mean F\+R\?"),
        ("R+lora", "write L, with task=finetune"),
        ("Naive+F", "cannot be combined"),
        ("F+G", "unknown atom 'G'"),
        ("Z1+Z3", "exclude each other"),
        ("O", "O needs Z2 or Z3, as in Z2"),
        ("Z1+O", "O needs Z2 or Z3"),
        ("Q+Z3", "exclude each other"),
    ],
)
def test_what_cannot_be_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        Method.parse(text)


def test_offload_means_more_with_zero_3():
    assert describe(Method.parse("Z2+O").techniques) == {"zero_stage": 2, "offload_optimizer": True}
    assert describe(Method.parse("Z3+O").techniques) == {
        "zero_stage": 3,
        "offload_optimizer": True,
        "offload_parameters": True,
    }


@pytest.mark.parametrize("atom", ATOMS.values(), ids=ATOMS)
def test_every_atom_is_consistent(atom):
    assert atom.help
    assert set(atom.needs) | set(atom.excludes) | set(atom.sets_with) <= set(ATOMS)
    method = Method.parse("+".join([atom.code, *atom.needs[:1]]), atom.tasks[0])
    assert describe(method.techniques).items() >= method.changes_of(atom).items()


def test_an_atom_of_another_task_names_the_task():
    with pytest.raises(ConfigError, match="task=serve"):
        Method.parse("Q", task="serve")


def test_full_ft_is_what_fine_tuning_calls_naive():
    assert str(Method.parse("full-ft", "finetune")) == "Naive"
    with pytest.raises(ConfigError, match="unknown atom 'Full-FT'"):
        Method.parse("Full-FT")


@pytest.mark.parametrize(
    ("method", "reason"),
    [("L+QL", "exclude each other"), ("P+L", "exclude each other"), ("Q", "does not belong to task=finetune")],
)
def test_adapters_stand_alone(method, reason):
    with pytest.raises(ConfigError, match=reason):
        Method.parse(method, "finetune")
