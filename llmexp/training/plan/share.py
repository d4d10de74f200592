"""What an atom changes in a plan's arithmetic: parameters that train, state, activations and FLOPs.

An atom names its share by `Atom.share`; the functions of this room apply those of a method's atoms in canonical order.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from llmexp.errors import ConfigError
from llmexp.method import Techniques

if TYPE_CHECKING:
    from llmexp.inputs.shape import ModelShape
    from llmexp.record.flops import Computed
    from llmexp.schema import AdapterConfig
    from llmexp.training.config import TrainingConfig
    from llmexp.training.plan.activations import Activations, Formula, Layer
    from llmexp.training.plan.memory import Storage
    from llmexp.training.plan.trained import Trained


class Share:
    """Each method gets what a run has without the atom and returns what it has with it; the default is no change."""

    words: str = ""
    """What stands in the memory's arithmetic, for a share that its numbers do not explain."""

    def trained(self, made: Trained, shape: ModelShape, adapter: AdapterConfig) -> Trained:
        """Return the counts of trained and frozen parameters."""
        return made

    def moments(self, size: float) -> float:
        """Return the bytes that the optimizer's moments take for each trained parameter."""
        return size

    def storage(self, made: Storage, config: TrainingConfig) -> Storage:
        """Return how a rank holds parameters, gradients and optimizer states."""
        return made

    def layer(self, made: Layer, formula: Formula) -> Layer:
        """Return the bytes of one decoder layer's activations for one micro batch."""
        return made

    def activations(self, made: Activations, formula: Formula) -> Activations:
        """Return the bytes of all activations of the fullest rank."""
        return made

    def computed(self, made: Computed, shape: ModelShape) -> Computed:
        """Return the FLOPs that the devices compute; those of the model follow from what trains."""
        return made


def shares_of(techniques: Techniques) -> tuple[Share, ...]:
    """Return the shares of a method's atoms; raise ConfigError where one cannot be loaded."""
    return tuple(map(_load, techniques.shares))


@cache
def _load(place: str) -> Share:
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # somebody else's code can raise anything
        raise ConfigError(f"an atom's share={place} cannot be loaded ({type(error).__name__}: {error})") from error
    if not isinstance(found, Share):
        raise ConfigError(f"an atom's share={place} is a {type(found).__name__}, not a Share")
    return found
