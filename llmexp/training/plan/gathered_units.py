"""What a rank gathers of partitioned parameters at a time, where each decoder layer is a unit and the rest another.

Experts that ranks share are a unit of their layer, partitioned over the ranks that hold the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.shape import RankPart, shape_of
from llmexp.training.config import TrainingConfig


@dataclass(frozen=True)
class Units:
    """The parameters of the largest decoder layer, of its shared experts, and of embedding, last norm and head.

    Of a pipeline it is the last stage, which has the last norm and the head. The first has less beside its layers, and
    nothing waits there.
    """

    layer: float = 0.0
    """Without `experts`."""
    experts: float = 0.0
    """Of the rank, where it shares experts with others; else they are a part of `layer`."""
    rest: int = 0
    embedding: int = 0
    tied: bool = False

    @classmethod
    def of(cls, config: TrainingConfig) -> Units:
        """Return those of a rank's part of the model; none where its layers are not known."""
        degrees = config.parallelism
        part = RankPart(degrees.tp, ep=degrees.ep, etp=degrees.etp or degrees.tp)
        if shape := shape_of(config.model):
            ends, experts = shape.ends_of_rank(part), shape.expert_parameters_of_rank(part) * (part.ep > 1)
            layer = (shape.parameters_of_rank(part) - ends - experts) / shape.num_layers
            embedding, tied = shape.embedding_parameters // part.tp, shape.tie_embeddings and degrees.pp == 1
            of_stage = shape.ends_of_rank(RankPart(degrees.tp, degrees.pp))
            return cls(layer, experts / shape.num_layers, of_stage, embedding, tied)
        try:
            made = architecture_of(config.model)
        except UncountedError:
            return cls()
        shared = part.ep > 1
        largest, experts = max(
            (kind.parameters_of_rank(part), kind.expert_parameters_of_rank(part) * shared) for kind in made.kinds
        )
        ends, tied = made.ends_of_rank(RankPart(degrees.tp, degrees.pp)), made.tie_embeddings and degrees.pp == 1
        return cls(largest - experts, experts, ends, made.embedding_parameters // part.tp, tied)


@dataclass(frozen=True)
class ReducedPart:
    """The part of a gradient that is left to a rank once it is reduced, on this rank's device."""

    size: int
    """Bytes of an element; 0 where it goes to the host."""
    share: float
    of_experts: float
    """The shares of all elements that a rank keeps, of shared experts and of all else."""
    passes: int
    """Of a step."""

    @property
    def stays(self) -> bool:
        """Tell whether the parts are there before the last backward makes them."""
        return self.passes > 1

    @property
    def late(self) -> float:
        """Bytes for an element of a unit that are not there before its gradient is reduced."""
        return 0.0 if self.stays else self.size * self.share

    @property
    def late_of_experts(self) -> float:
        """The same for shared experts."""
        return 0.0 if self.stays else self.size * self.of_experts


@dataclass(frozen=True)
class GatheredUnits:
    """The bytes of gathered parameters and of their whole gradients; a gradient becomes a part once it is reduced."""

    units: Units
    parameters: int
    gradients: int
    """Bytes of an element of either."""
    reduced: ReducedPart
    layers_stay: bool = False
    """Layers stay gathered from forward on, and are counted elsewhere."""
    rest_stays: bool = False
    """What is outside of layers stays gathered while its gradient is reduced, as another pass needs it."""
    rest_trains: bool = True

    @property
    def in_passes(self) -> float:
        """The most in a layer's backward: while its gradients are computed, or while those of its experts are reduced.

        Two layers are gathered, of which one is prefetched without its experts, and the gradients of both exist.
        """
        return max(self._computing, self._reducing)

    @property
    def waiting(self) -> float:
        """The head's gradient, which waits for the embedding's while layers compute."""
        return float(self.units.embedding * self.gradients)

    @property
    def late(self) -> float:
        """The bytes of gradients that do not exist yet when `in_passes` do in the backward of the first layers."""
        units, reduced = self.units, self.reduced
        return (2 * units.layer + units.rest) * reduced.late + units.experts * reduced.late_of_experts

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
        units, wait = self.units, self.units.rest * self.reduced.late
        in_layers = self.in_passes + self.waiting - self.late
        last = (units.rest + units.embedding * units.tied + units.layer) * self.gradients
        return max(in_layers, last - wait, self._reducing_rest * self.rest_trains - wait)

    @property
    def _reducing_rest(self) -> float:
        """Gradients are copied to be sent; then one of them, what is sent, what is received and its copy exist.

        Torch (2.13) does not let go of the last one before it is done: the head's or, on a stage, the embedding's. What
        was gathered is gone by then, but for passes before the last one; the first one's copy is the gradient.
        """
        units, reduced, sent = self.units, self.reduced, self.units.rest * self.gradients
        kept = units.embedding * self.gradients * (reduced.share < 1 and not units.tied)
        copy = units.rest * reduced.share * reduced.size
        received = units.rest * reduced.share * self.gradients * (reduced.size != self.gradients)
        between = self.rest_stays and reduced.passes > 2
        gone = 0.0 if between else min(self.rest, copy) if self.rest_stays else self.rest
        return max(2.0 * sent, kept + sent + received + copy) - gone

    @property
    def _computing(self) -> float:
        gathered = 0 if self.layers_stay else self.parameters
        return (2 * self.units.layer + self.units.experts) * (gathered + self.gradients)

    @property
    def _reducing(self) -> float:
        """Experts are dropped by then; their gradients exist whole, and as what is sent and what is received."""
        reduced, experts = self.reduced, self.units.experts
        gathered = -experts if self.layers_stay else 2 * self.units.layer
        a_part = self.gradients + reduced.size
        return gathered * self.parameters + experts * (self.gradients + reduced.of_experts * a_part)
