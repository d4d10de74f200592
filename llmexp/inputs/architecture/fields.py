"""The fields of a config.json, checked as they are read: what is not understood is said, not guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmexp.errors import ConfigError
from llmexp.inputs.architecture.model import Architecture, Layer, runs_of
from llmexp.inputs.architecture.parts import FULL, Reach


class UncountedError(ConfigError):
    """An architecture that llmexp does not know well enough to count it; the message says what it does not know."""


@dataclass(frozen=True)
class Fields:
    """What a config.json says; a field may have several names, of which the first one that is there counts.

    A null counts as absent, unless a method says otherwise.
    """

    family: str
    values: Mapping[str, Any]

    def size(self, *names: str, default: int | None = None) -> int:
        """Return a positive integer; raises UncountedError where it is none, or absent without a default."""
        found = next((self.values[name] for name in names if self.values.get(name) is not None), default)
        if found is None:
            raise UncountedError(f"config.json of {self.family} has no {names[0]}")
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise UncountedError(f"config.json: {names[0]}={found!r} is no positive integer")
        return found

    def index(self, name: str, default: int) -> int:
        """Return an integer that may be 0; raises UncountedError for anything else."""
        return 0 if self.values.get(name) == 0 else self.size(name, default=default)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a truth value; raises UncountedError for anything else."""
        found = self.values.get(name)
        if not isinstance(found, bool | None):
            raise UncountedError(f"config.json: {name}={found!r} is neither true nor false")
        return default if found is None else found

    def indices(self, name: str) -> Sequence[int]:
        """Return a list of layers, empty where it is absent; raises UncountedError for anything else."""
        found = self.values.get(name) or []
        if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
            raise UncountedError(f"config.json: {name}={found!r} is no list of layers")
        return found

    def window(self, default: int | None) -> int | None:
        """Return `sliding_window`; null is none, and absent is the family's default."""
        return self.size("sliding_window", default=default) if self.values.get("sliding_window", default) else None

    @property
    def layers(self) -> range:
        """The layers' numbers from 0."""
        return range(self.size("num_hidden_layers"))

    def kinds(self, known: Sequence[str], otherwise: Sequence[str]) -> Sequence[str]:
        """Return `layer_types`, or what the family takes where it is absent.

        Raise UncountedError for a kind that is not `known`, and for another number of layers.
        """
        found = self.values.get("layer_types") or otherwise
        wrong = next((each for each in found if each not in known), None)
        if wrong is not None:
            raise UncountedError(
                f"config.json: layer_types has {wrong!r}, and of {self.family} llmexp knows {', '.join(known)}"
            )
        if len(found) != len(self.layers):
            raise UncountedError(f"config.json: {len(found)} layer_types for num_hidden_layers={len(self.layers)}")
        return found

    def reaches(self, window: int | None, otherwise: Sequence[str]) -> list[Reach]:
        """Return each layer's reach by `layer_types` of full and sliding attention."""
        kinds = self.kinds(("full_attention", "sliding_attention"), otherwise)
        if window is None and "sliding_attention" in kinds:
            raise UncountedError("config.json: layer_types has sliding_attention, and sliding_window is not set")
        return [Reach("sliding", window) if window and kind == "sliding_attention" else FULL for kind in kinds]

    def decoder(self, layers: Sequence[Layer], *, tied: bool = False) -> Architecture:
        """Return the model of these layers; `tied` is the family's default."""
        return Architecture(
            family=self.family,
            vocab_size=self.size("vocab_size"),
            hidden_size=self.size("hidden_size"),
            tie_embeddings=self.flag("tie_word_embeddings", tied),
            runs=runs_of(layers),
        )
