"""The interface of a family of microbenchmarks, and what its points are made of.

A family states everything about its points but the calls themselves, which only ranks can make: its `case` names the
function that makes those. Bytes are those that any implementation has to move, each input read and each output written
once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import Field

from llmexp.errors import ConfigError
from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.record.samples import Record
from llmexp.schema import HardwareConfig, ModelConfig, Section

# Whose memory limits a point.
DEVICE, HOST = "device", "host"
S = TypeVar("S", bound=Section)


class MicroPoint(Record):
    """One thing to measure: its family, what of it, the dtype where it has one, and its sizes by name.

    Sizes are counts (m, n, k, seq_len, parameters, …) or bytes.
    """

    family: str
    kind: str
    dtype: str = ""
    sizes: dict[str, int] = Field(default_factory=dict)

    @property
    def params(self) -> dict[str, Any]:
        """The point as the parameters of a result's point."""
        dtype = {"dtype": self.dtype} if self.dtype else {}
        return {"family": self.family, "kind": self.kind} | dtype | self.sizes

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        return " ".join(filter(None, (self.kind, self.dtype, sizes)))


@dataclass(frozen=True)
class Setting:
    """What points depend on besides their family's keys: the machine, the model, and the dtypes of computation."""

    hardware: HardwareConfig
    model: ModelConfig
    dtypes: Sequence[str]
    without_model: str
    """The keys that leave out every point of the model's sizes, as a person types them."""

    @property
    def shape(self) -> ModelShape:
        """The model's sizes; raises ConfigError where they are not known."""
        shape = shape_of(self.model)
        if shape is None:
            raise ConfigError(
                f"model={self.model.name}: its sizes are known only once it is built; take one that is given by its "
                f"sizes, such as model=7b, or set {self.without_model}"
            )
        return shape


@dataclass(frozen=True)
class Limit:
    """A metric of the run: the highest `rate` among the points of a kind, and of a dtype where it matters."""

    name: str
    meaning: str
    rate: str
    kind: str
    dtype: str = ""


@dataclass(frozen=True)
class Curves:
    """Rates over one of the sizes, which is along the axis."""

    size: str
    quantities: tuple[str, ...]


@dataclass(frozen=True)
class Bar:
    """A limit in the picture, the first of these that was measured, divided by the size of the label's unit."""

    limits: tuple[str, ...]
    label: str
    divisor: float


class Family(ABC, Generic[S]):
    """A kind of measurement, whose section of the configuration is S; llmexp.registry has each by its name."""

    name: ClassVar[str]
    keys: ClassVar[type[Section]]
    """The type of its section, micro.<name>."""
    case: ClassVar[str]
    """Where a rank finds the function of (MicroPoint, Place) that makes a point's Case, as module:function."""
    title: ClassVar[str]
    """What stands above its table and its curves."""
    headings: ClassVar[Mapping[str, str]] = {"flops_per_s": "{}FLOP/s", "bytes_per_s": "{}B/s"}
    """The columns of its rates in their order, with the place of the unit's prefix."""
    limits: ClassVar[Sequence[Limit]] = ()
    curves: ClassVar[Curves | None] = None
    bar: ClassVar[Bar | None] = None
    fewest_ranks: ClassVar[int] = 1
    """With fewer ranks its points are not measured."""
    without_model: ClassVar[str] = ""
    """What a person types to leave out its points of the model's sizes; empty where it has none."""
    larger: ClassVar[str] = ""
    """The key by which the data of its points, where memory limits them, grow beyond a cache."""

    @abstractmethod
    def points(self, wanted: S, setting: Setting) -> Iterator[MicroPoint]:
        """Yield the points that its section asks for; raises ConfigError for those that cannot be."""

    def flops(self, point: MicroPoint) -> float | None:
        """Return the FLOPs of one call; None where FLOPs do not tell its speed."""
        return None

    def bytes_moved(self, point: MicroPoint) -> float | None:
        """Return the bytes that one call has to move; None where they do not tell its speed."""
        return None

    def memory(self, kind: str) -> str:
        """Return whose memory limits the points of a kind, DEVICE's or HOST's; "" where something else does."""
        return ""

    def data_bytes(self, point: MicroPoint) -> float | None:
        """Return the bytes of one set of a point's inputs and results; None where memory does not limit its speed."""
        return self.bytes_moved(point) if self.memory(point.kind) else None

    def rates(self, point: MicroPoint, seconds: float, ranks: int) -> dict[str, float]:
        """Return the rates of a call of so many seconds by name, which `headings` has."""
        work = {"flops_per_s": self.flops(point), "bytes_per_s": self.bytes_moved(point)}
        return {name: amount / seconds for name, amount in work.items() if amount is not None}

    def peak(self, rate: str, kind: str, dtype: str, hardware: HardwareConfig) -> float | None:
        """Return the hardware's peak of one of its rates; None where there is none or its file leaves it out.

        Of FLOP/s it is the dtype's, of bytes/s the bandwidth of the device's memory, where that limits the kind.
        """
        if rate == "flops_per_s":
            return {str(name): peak for name, peak in hardware.peak_flops_per_s.items()}.get(dtype)
        on_device = rate == "bytes_per_s" and self.memory(kind) == DEVICE
        return hardware.memory_bandwidth_bytes_per_s if on_device else None

    def is_graphed(self, kind: str) -> bool:
        """Tell whether calls of a kind do nothing but launch kernels into the current stream of CUDA."""
        return False

    def folder(self, wanted: S) -> str | None:
        """Return where its files go; None for the run's own folder."""
        return None


def sized(family: str, kinds: Sequence[str], sizes: Sequence[int]) -> Iterator[MicroPoint]:
    """Yield a point for each kind and each size in bytes."""
    return (MicroPoint(family=family, kind=kind, sizes={"bytes": size}) for kind, size in product(kinds, sizes))
