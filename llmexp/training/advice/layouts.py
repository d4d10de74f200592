"""The degrees of parallelism that a model and its machine leave to choose from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import product

from llmexp.inputs.shape import shape_of
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.degrees import DEGREES

# A rank with a shorter part of each sequence has too little to compute beside what it sends.
LEAST_POSITIONS_OF_CP = 4096
MOST_STAGES, MOST_VIRTUAL_STAGES = 32, 16
VIRTUAL = "parallelism.virtual_stages"
_CHOSEN = ("tp", "pp", "cp", "ep")


@dataclass(frozen=True)
class Layout:
    """Degrees without dp, which takes the devices that are left."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    virtual_stages: int = 1

    def words(self, fixed: Collection[str]) -> dict[str, str]:
        """Return the keys that are open and differ from their defaults."""
        values = {name: str(size) for name, size in vars(self).items() if size > 1}
        values |= {"sequence": "true"} if self.tp > 1 else {}
        return {key: value for name, value in values.items() if (key := f"parallelism.{name}") not in fixed}


def layouts(config: TrainingConfig, engine_degrees: Collection[str], fixed: Collection[str]) -> Iterator[Layout]:
    """Yield the layouts that divide the devices and the model evenly; a degree that is fixed stays as it is."""
    devices = config.hardware.devices_per_node * config.hardware.nodes
    for sizes in product(*(_sizes(config, name, engine_degrees, fixed) for name in _CHOSEN)):
        layout = Layout(*sizes)
        cut = layout.tp * layout.pp * layout.cp
        if devices % cut == 0 and devices // (layout.tp * layout.pp) % layout.ep == 0:
            yield from _with_virtual_stages(config, layout, fixed)


def _sizes(config: TrainingConfig, name: str, engine_degrees: Collection[str], fixed: Collection[str]) -> list[int]:
    """Return the powers of two that the model takes; other models than Llama-like ones are not cut."""
    if f"parallelism.{name}" in fixed or name not in engine_degrees or shape_of(config.model) is None:
        return [getattr(config.parallelism, name)]
    per_node, nodes = config.hardware.devices_per_node, config.hardware.nodes
    most = {"tp": per_node, "pp": MOST_STAGES}.get(name, per_node * nodes)
    powers = (1 << exponent for exponent in range(most.bit_length()))
    return [size for size in powers if size == 1 or _divides(config, name, size)]


def _divides(config: TrainingConfig, name: str, size: int) -> bool:
    if name == "cp":
        return config.data.seq_len % size == 0 and config.data.seq_len // size >= LEAST_POSITIONS_OF_CP
    shape = shape_of(config.model)
    sizes = [getattr(shape, key) for key in DEGREES[name].divides]
    return all(each is not None and each % size == 0 for each in sizes)


def layers_of(config: TrainingConfig) -> int | None:
    """Return the number of layers that stages share out; None where the model is not cut."""
    shape = shape_of(config.model)
    return shape.num_layers if shape else None


def virtual_stages(layers: int, stages: int) -> list[int]:
    """Return the virtual stages of a pipeline's rank that share out all layers evenly, one first."""
    return [size for size in range(1, MOST_VIRTUAL_STAGES + 1) if layers % (stages * size) == 0]


def _with_virtual_stages(config: TrainingConfig, layout: Layout, fixed: Collection[str]) -> Iterator[Layout]:
    """Yield the layout with one stage on a rank, and with as many as can be, which wait least."""
    layers = layers_of(config)
    if layout.pp == 1 or layers is None or {VIRTUAL, "parallelism.schedule"} & {*fixed}:
        yield layout
        return
    sizes = virtual_stages(layers, layout.pp)
    yield from (replace(layout, virtual_stages=size) for size in dict.fromkeys((sizes[0], sizes[-1])))
