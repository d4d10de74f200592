"""What a rank gathers of partitioned parameters at a time, where each decoder layer is a unit and the rest another."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.shape import RankPart, shape_of
from llmexp.training.config import TrainingConfig


@dataclass(frozen=True)
class Units:
    """The parameters of the largest decoder layer, and of the embedding, the last norm and the head."""

    layer: float = 0.0
    rest: int = 0
    embedding: int = 0
    tied: bool = False

    @classmethod
    def of(cls, config: TrainingConfig) -> Units:
        """Return those of a rank's part of the model; none where its layers are not known."""
        part = RankPart(config.parallelism.tp, ep=config.parallelism.ep)
        if shape := shape_of(config.model):
            rest = shape.ends_of_rank(part)
            layer = (shape.parameters_of_rank(part) - rest) / shape.num_layers
            return cls(layer, rest, shape.embedding_parameters // part.tp, shape.tie_embeddings)
        try:
            made = architecture_of(config.model)
        except UncountedError:
            return cls()
        layer = max(kind.parameters_of_rank(part) for kind in made.kinds)
        return cls(layer, made.parameters_outside_layers, made.embedding_parameters, made.tie_embeddings)


@dataclass(frozen=True)
class GatheredUnits:
    """The bytes of gathered parameters and of their whole gradients; a gradient becomes a part once it is reduced."""

    units: Units
    parameters: int
    gradients: int
    """Bytes of an element of either."""
    part: float
    """Bytes of an element's reduced gradient on this rank's device, where backward makes it."""

    @property
    def in_passes(self) -> float:
        """Two layers, of which one is prefetched, and the gradients of both."""
        return 2 * self.units.layer * (self.parameters + self.gradients)

    @property
    def rest(self) -> float:
        """What is outside of layers stays gathered to the end of backward."""
        return float(self.units.rest * self.parameters)

    @property
    def at_end(self) -> float:
        """The most near the end of backward besides `rest`, less the parts that do not exist then.

        The head's gradient waits for the embedding's. Both exist before those of a tied embedding are added, while the
        last layer's are still being reduced.
        """
        units, wait = self.units, self.units.rest * self.part
        in_layers = self.in_passes + units.embedding * self.gradients - 2 * units.layer * self.part
        last = (units.rest + units.embedding * units.tied + units.layer) * self.gradients
        return max(in_layers, last) - wait
