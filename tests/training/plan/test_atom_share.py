"""What an atom's share changes enters the plan, and the memory's arithmetic in words."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from planning import make_plan

from llmexp import method
from llmexp.errors import ConfigError
from llmexp.method import ATOMS, Atom, Method
from llmexp.record.flops import Computed
from llmexp.training.plan.activations import Activations, Formula, Layer
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.memory import StatePlacement, Storage
from llmexp.training.plan.share import Share, shares_of

WORDS = ("model=tiny", "hardware=cpu", "precision=fp32", "engine=torch")


class EightBitMoments(Share):
    def moments(self, size: float) -> float:
        return size / 4 * (1 + 4 / 256)


class GradientsFreedAtOnce(Share):
    words = "gradients are freed one by one"

    def storage(self, made: Storage, config: Any) -> Storage:
        return replace(made, gradients=StatePlacement(0), update=(), brief=())


class NothingKept(Share):
    def layer(self, made: Layer, formula: Formula) -> Layer:
        return replace(made, kept=0.0, again=made.kept)


class OnHost(Share):
    def activations(self, made: Activations, formula: Formula) -> Activations:
        return Activations(0, 0, made.kept)


class TwiceComputed(Share):
    def computed(self, made: Computed, shape: Any) -> Computed:
        return made.model_copy(update={"per_position": 2 * made.per_position})


EIGHT_BIT, FREED, NOTHING, HOST, TWICE = (
    EightBitMoments(),
    GradientsFreedAtOnce(),
    NothingKept(),
    OnHost(),
    TwiceComputed(),
)


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the plan of an atom W with a share of this module, and of an atom V with another."""
    monkeypatch.setitem(sys.modules, "shares_of_tests", sys.modules[__name__])

    def planned(*names: str) -> Any:
        atoms = {
            code: Atom(code, "", {}, share=f"shares_of_tests:{name}") for code, name in zip("WV", names, strict=False)
        }
        monkeypatch.setattr(method, "ATOMS", ATOMS | atoms)
        return make_plan(*WORDS, f"method={'+'.join(atoms) or 'Naive'}")

    return planned


def test_moments_in_8_bits_take_a_quarter_and_their_scales(sharing: Any) -> None:
    naive, eight = sharing(), sharing("EIGHT_BIT")
    assert (naive.optimizer_state_bytes_per_parameter, eight.optimizer_state_bytes_per_parameter) == (8, 2.03125)
    assert naive.memory.optimizer.device == 8 * naive.parameters
    assert eight.memory.optimizer.device == pytest.approx(2.03125 * naive.parameters, abs=1)
    assert "2.031 B optimizer states" in eight.memory.arithmetic


def test_gradients_that_are_freed_at_once_take_nothing_and_the_arithmetic_says_so(sharing: Any) -> None:
    naive, freed = sharing(), sharing("FREED")
    assert (freed.memory.gradients.device, freed.memory.in_all) == (0, naive.memory.in_all - 4 * naive.parameters)
    assert freed.memory.arithmetic.endswith(" GiB a rank; gradients are freed one by one")
    assert naive.memory.arithmetic.endswith(" GiB a rank")


def test_several_shares_add_up_in_the_methods_order(sharing: Any) -> None:
    both = sharing("EIGHT_BIT", "FREED")
    assert str(both.method) == "W+V"
    assert both.memory.gradients.device == 0
    assert both.optimizer_state_bytes_per_parameter == 2.03125


def test_activations_that_are_not_kept_leave_room(sharing: Any) -> None:
    naive, nothing, host = (fit_of(sharing(*names), 64) for names in ((), ("NOTHING",), ("HOST",)))
    assert naive
    assert nothing
    assert host
    assert nothing.need < naive.need
    assert nothing.state == host.state == naive.state


def test_flops_that_are_computed_twice_are_the_devices_and_not_the_models(sharing: Any) -> None:
    naive, twice = sharing(), sharing("TWICE")
    assert twice.flops.computed.per_position == 2 * naive.flops.computed.per_position
    assert twice.flops.per_position == naive.flops.per_position


def test_llmexps_own_atoms_state_theirs() -> None:
    for code in ("P", "L", "QL", "Q", "R"):
        (share,) = shares_of(Method.parse(code, ATOMS[code].tasks[0]).techniques)
        assert type(share) is not Share


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ABSENT", r"share=shares_of_tests:ABSENT cannot be loaded \(AttributeError: "),
        ("WORDS", r"share=shares_of_tests:WORDS is a tuple, not a Share"),
    ],
)
def test_a_share_that_is_none_is_named(sharing: Any, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        sharing(name)
