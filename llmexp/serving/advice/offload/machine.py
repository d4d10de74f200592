"""What one device, its host and its disk hold and move."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.schema import HardwareConfig
from llmexp.serving.predict.held import Held
from llmexp.serving.predict.rates import missing, rates_of, without_graphs

# Of copies from pinned memory: 12.89 GiB/s of PCIe 3.0's 15.75 GB/s, as FlexGen's authors fitted it.
_LINK_SHARE = 0.88
# Bytes of keys and values that a host's cores attend to in a second, by the same fit.
HOST_ATTENTION_PER_S = 12.3e9
# Disks write at half of the rate at which they read, as FlexGen's did.
_WRITE_SHARE = 0.5
# What a driver, a context and fragments take.
_USABLE = 0.9
_NEEDED = ("host_memory_bytes", "host_link_bandwidth_bytes_per_s")


@dataclass(frozen=True)
class OffloadMachine:
    """Bytes that can be used of each tier, and rates in bytes/s and FLOPs/s."""

    device_bytes: float
    host_bytes: float
    disk_bytes: float
    memory_per_s: float
    flops_per_s: float
    link_per_s: float
    read_per_s: float
    write_per_s: float
    host_attention_per_s: float = HOST_ATTENTION_PER_S


@dataclass(frozen=True)
class OffloadedModel:
    """A model of equal layers by its bytes in 16 bits and FLOPs; of one layer where nothing else is said."""

    layers: int
    weights: float
    kept_per_token: float
    """Bytes of keys and values."""
    flops_per_token: float
    hidden: float
    """Bytes of a token's hidden state."""
    outside: float
    """Bytes of embedding and head, which stay on the device."""


def lacking(hardware: HardwareConfig) -> list[str]:
    """Return the keys of a hardware file without which no split can be simulated; without a disk two tiers are left."""
    return missing(hardware, 1) + [f"hardware.{key}" for key in _NEEDED if not getattr(hardware, key)]


def machine_of(hardware: HardwareConfig) -> OffloadMachine:
    """Return the machine of a hardware file; `lacking` has to have nothing to say of it."""
    rates = without_graphs(rates_of(hardware, "bf16", "python", 1))
    read = float(hardware.disk_bandwidth_bytes_per_s or 0.0)
    return OffloadMachine(
        device_bytes=_USABLE * float(hardware.memory_bytes or 0),
        host_bytes=_USABLE * float(hardware.host_memory_bytes or 0),
        disk_bytes=_USABLE * float(hardware.disk_bytes or 0) if read else 0.0,
        memory_per_s=rates.weights_per_s,
        flops_per_s=rates.flops_per_s,
        link_per_s=_LINK_SHARE * float(hardware.host_link_bandwidth_bytes_per_s or 0.0),
        read_per_s=read or 1.0,
        write_per_s=_WRITE_SHARE * read or 1.0,
    )


def offloaded_model(held: Held, context: int) -> OffloadedModel:
    """Return a whole model as its layers are on average, with the cache of requests of that length."""
    outside = held.outside * held.formats.rest_bytes
    return OffloadedModel(
        layers=held.layers,
        weights=(held.weights_bytes - outside) / held.layers,
        kept_per_token=held.cache_bytes(context) / context / held.layers,
        flops_per_token=2 * held.active / held.layers,
        hidden=2 * held.hidden,
        outside=outside,
    )
