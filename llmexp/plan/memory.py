"""The sure part of a run's memory: parameters, gradients and optimizer states, by precision and method, before anything starts."""

from __future__ import annotations

from math import ceil

from pydantic import Field

from llmexp.method import Techniques
from llmexp.plan.shape import ModelShape
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


def estimate(shape: ModelShape, precision: PrecisionConfig, techniques: Techniques, dp: int, *, master_copy: bool) -> MemoryEstimate:
    """Count what one of `dp` replicas' ranks holds under ZeRO and offload (arXiv 1910.02054, section 3); `master_copy`: parameters held twice."""
    trained = trainable(shape, techniques)
    frozen = shape.parameters - trained
    size = BYTES_PER_ELEMENT
    master = size[precision.master] if master_copy else 0
    shares = [dp if techniques.zero_stage >= stage else 1 for stage in (3, 2, 1)]
    weights = ceil(trained * size[precision.parameters] / shares[0]) + ceil(frozen * NF4_BYTES_PER_PARAMETER)
    # Offloaded gradients lie beside the master copy that they update, in its dtype.
    gradient = size[precision.master if techniques.offload_optimizer else precision.gradients]
    gradients = ceil(trained * gradient / shares[1])
    states = ceil(trained * (master + 2 * size[precision.moments]) / shares[2])
    words = (
        f"{trained / 1e9:.4g}e9 trained parameters: {size[precision.parameters]} B weights / {shares[0]} + {gradient} B gradients / "
        f"{shares[1]} + {master + 2 * size[precision.moments]} B optimizer states / {shares[2]}"
    )
    if frozen:
        words += f"; {frozen / 1e9:.4g}e9 frozen: {NF4_BYTES_PER_PARAMETER:.3f} B weights"
    return MemoryEstimate(
        parameters=_place(weights, techniques.offload_parameters),
        gradients=_place(gradients, techniques.offload_optimizer),
        optimizer=_place(states, techniques.offload_optimizer),
        arithmetic=words + f" = {(weights + gradients + states) / GIB:.4g} GiB a rank",
    )


def trainable(shape: ModelShape, techniques: Techniques) -> int:
    """Parameters that train: all, or with 4-bit weights all but the decoder layers' matrices."""
    return shape.parameters - (shape.linear_parameters if techniques.quantization else 0)


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
