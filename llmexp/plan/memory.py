"""The sure part of a run's memory: parameters, gradients and optimizer states, by precision and method, before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from pydantic import Field

from llmexp.method import Techniques
from llmexp.plan.dims import ParallelDims
from llmexp.plan.shape import ModelShape
from llmexp.plan.trained import Trained
from llmexp.record.result import Record, StateBytes
from llmexp.schema import BYTES_PER_ELEMENT, PrecisionConfig

GIB = 1024**3
# NF4 with double quantisation: 4 bits, an 8-bit scale a block of 64, a 32-bit scale and offset a block of 256 scales (arXiv 2305.14314, section 3).
NF4_BYTES_PER_PARAMETER = (4 + 8 / 64 + 32 / (64 * 256)) / 8


class MemoryEstimate(Record):
    """Bytes of training state that one rank holds for certain; activations, buffers and the allocator's waste come on top."""

    parameters: StateBytes
    gradients: StateBytes
    optimizer: StateBytes
    arithmetic: str = Field(description="the same in words, for people")

    @property
    def device(self) -> int:
        """Bytes on the device, of one rank."""
        return self.parameters.device + self.gradients.device + self.optimizer.device

    @property
    def host(self) -> int:
        """Bytes in host memory, of one rank."""
        return self.parameters.host + self.gradients.host + self.optimizer.host


@dataclass(frozen=True)
class Held:
    """How the ranks hold one kind of training state."""

    bytes_per_parameter: float
    partitioned: bool = False
    on_host: bool = False


@dataclass(frozen=True)
class Storage:
    """How an engine holds trained parameters and what belongs to them; optimizer: moments, and a copy of the parameters where it updates one."""

    parameters: Held
    gradients: Held
    optimizer: Held


def zero_storage(precision: PrecisionConfig, techniques: Techniques, moments: float, *, master_copy: bool) -> Storage:
    """ZeRO's stages and its offload (arXiv 1910.02054, section 3), with so many bytes of moments a parameter.

    `master_copy`: the optimizer updates a copy of the parameters.
    """
    size, stage, on_host = BYTES_PER_ELEMENT, techniques.zero_stage, techniques.offload_optimizer
    states = (size[precision.master] if master_copy else 0) + moments
    # Offloaded gradients lie beside the master copy that they update, in its dtype.
    gradients = precision.master if on_host else precision.gradients
    return Storage(
        parameters=Held(size[precision.parameters], stage >= 3, techniques.offload_parameters),
        gradients=Held(size[gradients], stage >= 2, on_host),
        optimizer=Held(states, stage >= 1, on_host),
    )


def estimate(shape: ModelShape, storage: Storage, trained: Trained, dims: ParallelDims) -> MemoryEstimate:
    """Count what the fullest rank holds; what is frozen is held as the parameters are, or in 4 bits where they are."""
    four_bit = trained.four_bit // (dims.tp * dims.pp)
    # An adapter is no part of the shape; no degree cuts it.
    held = trained.trainable if trained.frozen else shape.parameters_of_rank(dims.tp, dims.pp, dims.ep, v_shaped=dims.v_shaped) - four_bit
    # Ranks that share out experts hold different ones: what all replicas hold together, and partition, is more than one of them holds.
    together = held + (dims.ep - 1) * shape.expert_parameters_of_rank(dims.tp, dims.pp, dims.ep)
    kinds = {"weights": storage.parameters, "gradients": storage.gradients, "optimizer states": storage.optimizer}
    shares = {name: dims.dp * dims.cp if kind.partitioned else 1 for name, kind in kinds.items()}
    counts = {name: together if kind.partitioned else held for name, kind in kinds.items()}
    sizes = {name: ceil(counts[name] * kind.bytes_per_parameter / shares[name]) for name, kind in kinds.items()}
    cut = f" of {trained.trainable / 1e9:.4g}e9 ({dims.cut})" if held < trained.trainable else ""
    words = f"{held / 1e9:.4g}e9 trained parameters{cut}: " + " + ".join(
        f"{kind.bytes_per_parameter:.4g} B {name}" + f" of {together / 1e9:.4g}e9" * (counts[name] != held) + f" / {shares[name]}"
        for name, kind in kinds.items()
    )
    for count, size in ((trained.frozen, storage.parameters.bytes_per_parameter), (four_bit, NF4_BYTES_PER_PARAMETER)):
        if count:
            sizes["weights"] += ceil(count * size / shares["weights"])
            words += f"; {count / 1e9:.4g}e9 frozen: {size:.4g} B weights / {shares['weights']}"
    parameters, gradients, optimizer = (_place(sizes[name], kind.on_host) for name, kind in kinds.items())
    total = sum(sizes.values()) / GIB
    return MemoryEstimate(parameters=parameters, gradients=gradients, optimizer=optimizer, arithmetic=f"{words} = {total:.4g} GiB a rank")


def shortage(memory: MemoryEstimate, ranks_per_node: int, device_bytes: int | None, host_bytes: int | None) -> str | None:
    """Say why the estimate cannot fit, or None. `device_bytes` None: ranks live in host memory altogether."""
    if device_bytes is not None and memory.device > device_bytes:
        return f"needs {memory.device / GIB:.1f} GiB on the device for certain, which has {device_bytes / GIB:.1f} GiB: {memory.arithmetic}"
    on_host = ranks_per_node * (memory.host if device_bytes is not None else memory.host + memory.device)
    if host_bytes is not None and on_host > host_bytes:
        return (
            f"needs {on_host / GIB:.1f} GiB of host memory for certain on {ranks_per_node} ranks a node, which has {host_bytes / GIB:.1f} GiB: "
            f"{memory.arithmetic}"
        )
    return None


def _place(size: int, offloaded: bool) -> StateBytes:
    return StateBytes(host=size) if offloaded else StateBytes(device=size)
