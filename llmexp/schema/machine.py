"""The sections that say where a run takes place: the hardware, and which of several machines this is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from llmexp.schema.section import NonNegativeInt, PeakDtype, PositiveFloat, PositiveInt, Section, Tuple, Whole

# The first sm number of this generation of NVIDIA's GPUs.
BLACKWELL = 100
# Blackwell Ultra has Blackwell's rates in bf16 and fp8, by the HGX B300's datasheet.
_SAME_KERNELS = {"sm_103": "sm_100"}
ARCHITECTURE = r"^(sm_\d+|gfx[0-9a-f]+)$"


class HardwareConfig(Section):
    """One machine: its devices, their dense peaks, links and price, each with a source."""

    name: str
    device: Literal["cuda", "cpu"]
    architecture: Annotated[str, Field(pattern=ARCHITECTURE)] | None = Field(
        None, description="the compilers' name for the device: sm_90 (NVIDIA), gfx942 (AMD); None on cpu or if unknown"
    )
    device_names: Annotated[tuple[str, ...], Tuple] = Field((), description="the driver's names for this device")
    devices_per_node: PositiveInt
    nodes: PositiveInt = Field(1, description="machines of this kind that a run uses")
    network_interface: str | None = Field(
        None, description="over which ranks on several nodes communicate, such as ib0; None: their libraries choose"
    )
    memory_bytes: PositiveInt | None = Field(None, description="of one device; None on cpu: the host's memory counts")
    memory_limit_bytes: PositiveInt | None = Field(
        None,
        description=(
            "emulates a smaller device in task=pretrain and finetune with llmexp's own ranks: limits what torch "
            "allocates on one GPU, or on cpu how far a rank's data grows once its libraries are loaded (RLIMIT_DATA)"
        ),
    )
    host_memory_bytes: PositiveInt | None = None
    disk_bytes: PositiveInt | None = Field(None, description="of a node's fast disks, for what its memory cannot hold")
    disk_bandwidth_bytes_per_s: PositiveFloat | None = Field(None, description="of a node's fast disks, when read")
    peak_flops_per_s: dict[PeakDtype, PositiveFloat] = Field(
        default_factory=dict, description="dense, no sparsity, per device"
    )
    memory_bandwidth_bytes_per_s: PositiveFloat | None = None
    interconnect: str | None = None
    interconnect_bandwidth_bytes_per_s: PositiveFloat | None = Field(None, description="per device and direction")
    interconnect_devices: PositiveInt | None = Field(
        None, description="that the interconnect connects, where it reaches beyond a node, as NVLink does in a rack"
    )
    peer_access: bool = Field(
        False, description="whether devices on PCIe read each other's memory, not only what passes through the host's"
    )
    network_bandwidth_bytes_per_s: PositiveFloat | None = Field(
        None, description="between nodes, per device and direction: that of a node's network cards over its devices"
    )
    host_link_bandwidth_bytes_per_s: PositiveFloat | None = Field(
        None, description="host to device, per device and direction"
    )
    environment: dict[str, str] = Field(
        default_factory=dict, description="variables the machine needs, such as NCCL_P2P_DISABLE"
    )
    serving_environment: dict[str, str] = Field(
        default_factory=dict, description="variables that it needs with task=serve alone; they win over environment"
    )
    calibration: str = Field(
        "auto",
        description=(
            "the limits, measured by task=micro, to compare a step with: auto: the latest below sweep.outputs with "
            "the same device, torch and ranks; none; or the folder of such a run"
        ),
    )
    price_per_device_hour_usd: PositiveFloat | None = None
    sources: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _connects_nodes(self) -> HardwareConfig:
        if self.interconnect_devices and self.interconnect_devices < self.devices_per_node:
            raise ValueError(
                f"hardware.interconnect_devices={self.interconnect_devices} is less than "
                f"hardware.devices_per_node={self.devices_per_node}: it counts devices of several nodes: set null "
                "where it ends at one"
            )
        return self

    @property
    def connected_devices(self) -> int:
        """How many devices reach each other over the interconnect: those of a node, or of several in one rack."""
        return max(self.devices_per_node, self.interconnect_devices or 1)

    @property
    def is_amd(self) -> bool:
        """Tell whether the devices are AMD's, which torch calls cuda too."""
        return (self.architecture or "").startswith("gfx")

    @property
    def measured_as(self) -> str:
        """The architecture whose measured kernels say how fast these devices are; empty if it is unknown."""
        return _SAME_KERNELS.get(self.architecture or "", self.architecture or "")

    def measured(self, kernels: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Return what was measured of each kind of kernel on this device by its name, else on its architecture."""
        return {kind: by[key] for kind, by in kernels.items() for key in (self.measured_as, self.name) if key in by}

    @property
    def sm(self) -> int | None:
        """NVIDIA's number of the architecture, 90 for compute capability 9.0; None for another or an unknown one."""
        kind, _, number = (self.architecture or "").partition("_")
        return int(number) if kind == "sm" else None


class NodeConfig(Section):
    """The number of this machine among those of a run, and how to reach machine 0, where no SLURM job says so."""

    rank: NonNegativeInt | None = Field(None, description="counted from 0; machine 0 measures and records")
    address: str | None = Field(None, description="host name or address at which the others reach machine 0")
    port: Annotated[int, Field(ge=1, le=65535), Whole] | None = Field(
        None, description="on which machine 0 listens for the others"
    )
