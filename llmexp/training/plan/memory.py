"""An estimate of the memory that a run needs for certain, before it starts: parameters, gradients, optimizer states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Protocol

from llmexp.dtypes import bytes_of
from llmexp.inputs.shape import RankPart
from llmexp.method import Techniques
from llmexp.record.digits import GIB
from llmexp.record.memory import MemoryEstimate
from llmexp.record.samples import StateBytes
from llmexp.training.config import PrecisionConfig
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.trained import Trained

# NF4 with double quantization (arXiv 2305.14314, section 3) has 4 bits a parameter, an 8-bit scale for each 64
# parameters and a 32-bit scale for each 256 of these scales.
NF4_BYTES_PER_PARAMETER = 4 / 8
NF4_SCALE_BYTES_PER_PARAMETER = (8 / 64 + 32 / (64 * 256)) / 8


class Held(Protocol):
    """What is asked of a model: a `ModelShape`, or an `Architecture` where no degree cuts it."""

    def parameters_of_rank(self, part: RankPart) -> int:
        """Return the parameters of the rank that holds most."""

    def ends_of_rank(self, part: RankPart) -> int:
        """Return the parameters of embedding, last norm and head of the rank that holds most of them."""

    def expert_parameters_of_rank(self, part: RankPart) -> int:
        """Return the expert parameters of that rank."""


@dataclass(frozen=True)
class StatePlacement:
    """A description of how the ranks hold one kind of training state."""

    bytes_per_parameter: float
    partitioned: bool = False
    on_host: bool = False
    elements: float = inf
    """The largest number of elements of a rank's share that exists at a time."""


@dataclass(frozen=True)
class Gathered:
    """The whole parameters that a rank keeps on the device from forward to backward, beside its own part of them."""

    bytes_per_parameter: float
    layers: bool
    """Decoder layers are kept too, not only the parameters outside of them."""
    beside_gradients: bool
    """They coexist with all gradients, as those of the pass before do where a step has several passes."""


@dataclass(frozen=True)
class OnDisk:
    """The bytes of a rank's states in files, by kind, and of what stays in host memory for them."""

    optimizer: int
    gradients: int
    optimizer_on_host: int
    """Of states that are too small for a file."""
    gradients_on_host: int
    """Of copies of gradients that are too small for a file, beside the gradients themselves."""
    buffers: int
    """Those through which states pass from and to the files."""

    @property
    def on_host(self) -> int:
        """The bytes that stay in host memory for them."""
        return self.optimizer_on_host + self.gradients_on_host + self.buffers


@dataclass(frozen=True)
class Storage:
    """A description of how an engine holds trained parameters, their gradients and their optimizer states.

    `optimizer` counts the moments, and the copy of the parameters where the optimizer updates one.
    """

    parameters: StatePlacement
    gradients: StatePlacement
    optimizer: StatePlacement
    update: tuple[StatePlacement, ...] = ()
    """The gradients, copies included, that exist at the same time in the update; if empty, `gradients` applies."""
    brief: tuple[tuple[StatePlacement, ...], ...] = ()
    """Gradients with copies that exist at one time inside a call of the engine, where nothing counts them."""
    gathered: Gathered | None = None
    gradients_stay: bool = False
    """Gradients, or their buckets, exist from one pass to the next, so that activations are beside them."""
    late_gradients: float = 0.0
    """Bytes of gradients that do not exist yet in the backward of the first layer, the last to run."""
    buffers: float = 0.0
    """Bytes that the engine fills on the device while it computes: buckets, and parameters that it has gathered."""
    update_buffers: float = 0.0
    """What of them, and of gathered parameters, is still there when all gradients are."""
    waiting_gradient: float = 0.0
    """The head's whole gradient, where it waits in the backward of layers to be reduced."""
    on_disk: OnDisk | None = None
    """What is in files; None where no state is."""


def zero_storage(precision: PrecisionConfig, techniques: Techniques, moments: float, *, master_copy: bool) -> Storage:
    """Describe how ZeRO's stages and its offload hold training state (arXiv 1910.02054, section 3).

    `moments` are bytes of moments per parameter; with `master_copy` the optimizer updates a copy of the parameters.
    """
    size, stage, on_host = bytes_of, techniques.zero_stage, techniques.offload_optimizer
    states = (size(precision.master) if master_copy else 0) + moments
    # Offloaded gradients have the dtype of the master copy that they update.
    gradients = precision.master if on_host else precision.gradients
    return Storage(
        parameters=StatePlacement(size(precision.parameters), stage >= 3, techniques.offload_parameters),
        gradients=StatePlacement(size(gradients), stage >= 2, on_host),
        optimizer=StatePlacement(states, stage >= 1, on_host),
    )


@dataclass(frozen=True)
class _Counts:
    """Counts of trained parameters: those of the fullest rank, and those that `ranks` ranks partition together."""

    held: int
    together: int
    ranks: int

    @classmethod
    def of(cls, shape: Held, trained: Trained, four_bit: int, dims: ParallelDims) -> _Counts:
        # An adapter is no part of the shape, and no degree cuts it.
        held = trained.trainable if trained.frozen else shape.parameters_of_rank(dims.rank_part) - four_bit
        # Ranks that share out experts hold different ones, so all replicas together hold more than one of them does.
        experts = shape.expert_parameters_of_rank(dims.rank_part)
        together = held + experts * dims.same_parameters // dims.same_experts - experts
        return cls(held, together, dims.sharers)

    def shares(self, kind: StatePlacement) -> int:
        return self.ranks if kind.partitioned else 1

    def share(self, kind: StatePlacement) -> float:
        """Return the parameters in a rank's share."""
        return (self.together if kind.partitioned else self.held) / self.shares(kind)

    def size(self, kind: StatePlacement) -> int:
        """Return the bytes of a rank's share."""
        return ceil(min(self.share(kind), kind.elements) * kind.bytes_per_parameter)

    def words(self, name: str, kind: StatePlacement) -> str:
        of = f" of {self.together / 1e9:.4g}e9" * (kind.partitioned and self.together != self.held)
        most = f", {kind.elements / 1e9:.4g}e9 at a time" * (kind.elements < self.share(kind))
        return f"{kind.bytes_per_parameter:.4g} B {name}{of} / {self.shares(kind)}{most}"


def estimate(
    shape: Held, storage: Storage, trained: Trained, dims: ParallelDims, said: Sequence[str] = ()
) -> MemoryEstimate:
    """Count the bytes of the fullest rank; frozen parameters are held like the trained ones, or in 4 bits.

    `said` is what stands in the arithmetic besides.
    """
    four_bit = trained.four_bit // (dims.parts("matrices") * dims.parts("layers"))
    counts = _Counts.of(shape, trained, four_bit, dims)
    gradients, brief, gradient_words = _gradients(storage, counts)
    frozen, scales, frozen_words = _frozen(
        storage.parameters, counts.shares(storage.parameters), trained.frozen, four_bit
    )
    weights = _place(counts.size(storage.parameters) + frozen, storage.parameters.on_host)
    whole, kept = _gathered(storage.gathered, shape, counts.held + trained.frozen, dims.rank_part)
    files = storage.on_disk
    reduced, states = _reduced_and_states(storage, counts, gradients)
    made = MemoryEstimate(
        parameters=StateBytes(device=weights.device + scales, host=weights.host),
        gradients=reduced,
        brief_gradients=brief,
        optimizer=states,
        gathered=whole,
        gathered_beside_gradients=kept,
        standing_gradients=counts.size(storage.gradients) * (storage.gradients_stay and not storage.gradients.on_host),
        made_gradients=max(0, counts.size(storage.gradients) - round(storage.late_gradients))
        * (not storage.gradients.on_host),
        waiting_gradient=round(storage.waiting_gradient),
        buffers=round(storage.buffers),
        update_buffers=round(storage.update_buffers),
        swap_buffers=files.buffers if files else 0,
        arithmetic="",
    )
    passing = [gradient_words] + [f"{kept / GIB:.4g} GiB of gathered parameters"] * (kept > 0)
    if whole > kept + gradients + brief:
        passing = [f"{whole / GIB:.4g} GiB of gathered parameters at the end of forward"]
    cut = f" of {trained.trainable / 1e9:.4g}e9 ({dims.cut})" if counts.held < trained.trainable else ""
    terms = [counts.words("weights", storage.parameters), *passing]
    of_states = counts.words("optimizer states", storage.optimizer)
    terms += [f"{files.on_host / GIB:.4g} GiB of buffers and of states without a file"] if files else [of_states]
    swapped = f"; on disk {of_states} and gradients = {made.disk / GIB:.4g} GiB" if files else ""
    words = (
        f"{counts.held / 1e9:.4g}e9 trained parameters{cut}: {' + '.join(terms)}{frozen_words} = "
        f"{made.in_all / GIB:.4g} GiB a rank{swapped}{''.join(f'; {words}' for words in said)}"
    )
    return made.model_copy(update={"arithmetic": words})


def _gradients(storage: Storage, counts: _Counts) -> tuple[int, int, str]:
    """Return the bytes of gradients at the end of backward or in the update, whichever is more, and the arithmetic.

    Between them stands how many more there are briefly, inside a call of the engine.
    """
    moments = (
        ("gradients", (storage.gradients,)),
        ("gradients in the update", storage.update),
        *(("gradients at a time", kinds) for kinds in storage.brief),
    )
    sizes = [sum(map(counts.size, kinds)) for _, kinds in moments]
    name, kinds = moments[sizes.index(max(sizes))]
    lasting = max(sizes[:2])
    return lasting, max(sizes) - lasting, " + ".join(counts.words(name, kind) for kind in kinds)


def _reduced_and_states(storage: Storage, counts: _Counts, gradients: int) -> tuple[StateBytes, StateBytes]:
    """Return where the bytes of `gradients` are, and those of optimizer states."""
    if files := storage.on_disk:
        return (
            StateBytes(host=gradients + files.gradients_on_host, disk=files.gradients),
            StateBytes(host=files.optimizer_on_host, disk=files.optimizer),
        )
    optimizer = _place(counts.size(storage.optimizer), storage.optimizer.on_host)
    return _place(gradients, storage.gradients.on_host), optimizer


def _frozen(weights: StatePlacement, shares: int, frozen: int, four_bit: int) -> tuple[int, int, str]:
    """Return the bytes of frozen parameters, those of their scales, and both in words.

    The frozen parameters lie where the weights lie; scales are not partitioned and stay on the device.
    """
    size = ceil(frozen * weights.bytes_per_parameter / shares) + ceil(four_bit * NF4_BYTES_PER_PARAMETER / shares)
    held = (
        (frozen, weights.bytes_per_parameter, "weights", shares),
        (four_bit, NF4_BYTES_PER_PARAMETER, "weights", shares),
    )
    scales = (four_bit, NF4_SCALE_BYTES_PER_PARAMETER, "scales", 1)
    words = "".join(
        f"; {count / 1e9:.4g}e9 frozen: {each:.4g} B {name} / {parts}"
        for count, each, name, parts in (*held, scales)
        if count
    )
    return size, ceil(four_bit * NF4_SCALE_BYTES_PER_PARAMETER), words


def _gathered(kept: Gathered | None, shape: Held, held: int, part: RankPart) -> tuple[int, int]:
    """Return the bytes of gathered parameters at the end of forward, and of those that coexist with all gradients.

    `held` are all parameters of a rank without the partitioning that gathering undoes.
    """
    if kept is None:
        return 0, 0
    count = held if kept.layers else shape.ends_of_rank(part)
    size = ceil(count * kept.bytes_per_parameter)
    return size, size if kept.beside_gradients else 0


def _place(size: int, offloaded: bool) -> StateBytes:
    return StateBytes(host=size) if offloaded else StateBytes(device=size)
