"""The degrees of parallelism that a model and its machine leave to choose from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from itertools import product

from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.shape import shape_of
from llmexp.schema import EndsAsLayers, FamilyModel
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.degrees import DEGREES, ENDS

# A rank with a shorter part of each sequence has too little to compute beside what it sends.
LEAST_POSITIONS_OF_CP = 4096
MOST_STAGES, MOST_VIRTUAL_STAGES = 32, 16
VIRTUAL, ENDS_AS_LAYERS, ETP = (f"parallelism.{name}" for name in ("virtual_stages", "ends_as_layers", "etp"))
_CHOSEN = ("tp", "pp", "cp", "ep")


@dataclass(frozen=True)
class Layout:
    """Degrees without dp, which takes the devices that are left."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    virtual_stages: int = 1
    etp: int | None = None
    ends_as_layers: EndsAsLayers | None = None

    def words(self, fixed: Collection[str]) -> dict[str, str]:
        """Return the keys that are open and differ from their defaults."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        words = {each.name: str(values[each.name]) for each in fields(self) if values[each.name] != each.default}
        words |= {"sequence": "true"} if self.tp > 1 else {}
        return {key: value for name, value in words.items() if (key := f"parallelism.{name}") not in fixed}


def layouts(config: TrainingConfig, engine_keys: Collection[str], fixed: Collection[str]) -> Iterator[Layout]:
    """Yield the layouts that divide the devices and the model evenly; a key that is fixed stays as it is.

    `engine_keys` are the keys of parallelism that the engine has, without their section.
    """
    devices = config.hardware.devices_per_node * config.hardware.nodes
    for tp, pp, cp, ep in product(*(_sizes(config, name, engine_keys, fixed) for name in _CHOSEN)):
        degrees = Layout(tp, pp, cp, ep)
        if devices % (degrees.tp * degrees.pp * degrees.cp):
            continue
        ends = next(_even_ends(config, degrees.pp, engine_keys, fixed), None)
        for layout in _with_experts(replace(degrees, ends_as_layers=ends), engine_keys, fixed):
            if devices % ((layout.etp or layout.tp) * layout.pp * layout.ep) == 0:
                yield from _with_virtual_stages(config, layout, fixed)


def _sizes(config: TrainingConfig, name: str, engine_keys: Collection[str], fixed: Collection[str]) -> list[int]:
    """Return the powers of two that the model takes; other models than Llama-like ones share out experts alone."""
    counts = _expert_counts(config) if name == "ep" else ()
    if f"parallelism.{name}" in fixed or name not in engine_keys or (shape_of(config.model) is None and not counts):
        return [getattr(config.parallelism, name)]
    devices = config.hardware.devices_per_node * config.hardware.nodes
    most = {"tp": min(devices, config.hardware.connected_devices), "pp": MOST_STAGES}.get(name, devices)
    powers = (1 << exponent for exponent in range(most.bit_length()))
    if name == "pp":
        return [size for size in powers if size == 1 or any(True for _ in _even_ends(config, size, engine_keys, fixed))]
    if counts:
        return [size for size in powers if all(count % size == 0 for count in counts)]
    return [size for size in powers if size == 1 or _divides(config, name, size)]


def _expert_counts(config: TrainingConfig) -> Collection[int]:
    """Return the numbers of experts of a family's layers; empty for other models, whose numbers are keys."""
    return architecture_of(config.model).expert_counts if isinstance(config.model, FamilyModel) else ()


def _divides(config: TrainingConfig, name: str, size: int) -> bool:
    if name == "cp":
        return config.data.seq_len % size == 0 and config.data.seq_len // size >= LEAST_POSITIONS_OF_CP
    shape = shape_of(config.model)
    sizes = [getattr(shape, key) for key in DEGREES[name].divides]
    return all(each is not None and each % size == 0 for each in sizes)


def _even_ends(
    config: TrainingConfig, pp: int, engine_keys: Collection[str], fixed: Collection[str]
) -> Iterator[EndsAsLayers | None]:
    """Yield what may count as layers so that stages are even, nothing first; every rank keeps a layer of its own."""
    shape, asked = shape_of(config.model), config.parallelism.ends_as_layers
    is_open = ENDS_AS_LAYERS not in fixed and "ends_as_layers" in engine_keys
    choices: tuple[EndsAsLayers | None, ...] = (None, "both", "head", "embedding") if is_open else (asked,)
    for ends in choices:
        layers = (shape.num_layers if shape else 0) + ENDS[ends]
        if layers % pp == 0 and (ends is None or layers > pp):
            yield ends


def _with_experts(layout: Layout, engine_keys: Collection[str], fixed: Collection[str]) -> Iterator[Layout]:
    """Yield the layout with each expert cut over all ranks of tp, and with whole ones."""
    yield layout
    if layout.tp > 1 and layout.ep > 1 and "etp" in engine_keys and ETP not in fixed:
        yield replace(layout, etp=1)


def layers_of(config: TrainingConfig) -> int | None:
    """Return the number of layers, with ends that count as one, that stages share out; None for a model not cut."""
    shape = shape_of(config.model)
    return shape.num_layers + ENDS[config.parallelism.ends_as_layers] if shape else None


def virtual_stages(layers: int, stages: int) -> list[int]:
    """Return the virtual stages of a pipeline's rank that share out all layers evenly, one first."""
    return [size for size in range(1, MOST_VIRTUAL_STAGES + 1) if layers % (stages * size) == 0]


def _with_virtual_stages(config: TrainingConfig, layout: Layout, fixed: Collection[str]) -> Iterator[Layout]:
    """Yield the layout with one stage on a rank, and with as many as can be, which wait least."""
    shape = shape_of(config.model)
    if layout.pp == 1 or shape is None or {VIRTUAL, "parallelism.schedule"} & {*fixed}:
        yield layout
        return
    sizes = virtual_stages(shape.num_layers + ENDS[layout.ends_as_layers], layout.pp)
    yield from (replace(layout, virtual_stages=size) for size in dict.fromkeys((sizes[0], sizes[-1])))
