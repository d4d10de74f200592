"""The peak memory that the paper printed, by the plan's parts and what its software of 2023 held of each.

The paper's figures are what the allocator had reserved. On the A800 it kept whole gradients and gathered parameters,
which cards of 24 GB did without. So they judge the parts, not whether a run fits: benchmarks/trust_memory.py has that.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figure import Figure
from benchmarks.prediction.cells import RESULTS, own_cell
from benchmarks.prediction.errors import of_errors
from benchmarks.prediction.fit import Constant, Vector, fitted, starts
from benchmarks.rates import rate
from benchmarks.trust_memory import TASKS, capacities, is_odd, paper_plans, precision_of
from llmexp.inputs.shape import shape_of
from llmexp.method import Method
from llmexp.paper.printed import read_table
from llmexp.record.digits import GIB
from llmexp.record.memory import Fit
from llmexp.training.plan.activations import FP32, Formula
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.trained import Trained
from llmexp.training.plan.training_plan import TrainingPlan

BF16 = 2
A800, RTX = ("a800",), ("rtx4090", "rtx3090_nvlink", "rtx3090")
LIMITS, OWN_LIMITS = (7.0, 24.0), (3.0, 8.0)
# The libraries of a run may be a little smaller than the plan takes them to be.
SLACK = 0.98
# How sharply the card's capacity ends what is reserved.
_SHARP = 20.0


@dataclass(frozen=True)
class Parts:
    """What a rank holds, in GiB, and flags of 0 or 1."""

    weights: Any
    states: Any
    gradients: Any
    """Of all trained parameters, in bf16."""
    gathered: Any
    """All parameters, in bf16."""
    two_layers: Any
    """The parameters of two decoder layers, in bf16."""
    layer: Any
    """What one layer keeps for backward, without scores."""
    scores: Any
    entries: Any
    """The inputs of all layers."""
    logits: Any
    """In fp32."""
    layers: Any
    capacity: Any
    replicated: Any
    zero2: Any
    zero3: Any
    offloads: Any
    adapter: Any
    four_bit: Any
    recomputed: Any


@dataclass(frozen=True)
class Held:
    """How much of each part the paper's software held."""

    context: Any
    """GiB of the libraries."""
    update_copies: Any
    """Copies of gradients in the update, without Z."""
    update_copies_4bit: Any
    whole_gradients: Any
    """Of all gradients, with Z2."""
    whole_parameters: Any
    """Of all parameters, with Z3 on the device."""
    buffers: Any
    """GiB of Z3's buffers where it gathers little: with O, and with adapters."""
    layers_at_a_time: Any
    layer: Any
    scores: Any
    entries: Any
    logits: Any
    adapter_activations: Any
    adapter_weights: Any
    """Of frozen weights, where no Z partitions anything."""
    capacity: Any
    """The share of the card that can be reserved."""


_CONSTANTS: dict[str, tuple[float, float, list[tuple[str, ...]]]] = {
    "context": (1.2, 0.5, [()]),
    "update_copies": (1.0, 0.5, [()]),
    "update_copies_4bit": (0.5, 0.7, [()]),
    "whole_gradients": (0.5, 0.7, [A800, RTX]),
    "whole_parameters": (0.8, 0.5, [A800, RTX]),
    "buffers": (3.0, 0.7, [()]),
    "layers_at_a_time": (2.0, 0.5, [()]),
    "layer": (1.2, 0.3, [()]),
    "scores": (1.5, 0.5, [()]),
    "entries": (1.5, 0.5, [()]),
    "logits": (2.0, 0.4, [()]),
    "adapter_activations": (1.2, 0.3, [()]),
    "adapter_weights": (1.2, 0.2, [A800, RTX]),
    "capacity": (0.95, 0.02, [()]),
}


@dataclass(frozen=True)
class MemoryCell:
    """A cell with its plan, and the memory that was printed, which behaves like GiB."""

    name: str
    hardware: str
    plan: TrainingPlan
    micro: int
    printed: float
    capacity: float

    @property
    def method(self) -> frozenset[str]:
        """Its atoms."""
        return frozenset(self.plan.atom_codes)

    @property
    def parts(self) -> Parts:
        """Return what a rank holds by the plan's arithmetic."""
        plan, shape = self.plan, shape_of(self.plan.config.model)
        assert shape is not None
        assert plan.memory is not None
        techniques, stage = plan.techniques, plan.techniques.zero_stage
        formula = Formula(shape, plan.config, techniques, plan.dims, self.micro)
        trained, layer, scores = (
            Trained.of(shape, techniques, plan.config.adapter),
            formula.layer(),
            formula.scores()[0],
        )
        of_layer = (shape.parameters - shape.parameters_outside_layers) / shape.num_layers
        whole = shape.parameters - trained.four_bit
        sizes = {
            "weights": plan.memory.parameters.device,
            "states": plan.memory.optimizer.device,
            "gradients": BF16 * trained.trainable,
            "gathered": BF16 * whole,
            "two_layers": 2 * BF16 * of_layer,
            "layer": layer.kept - scores,
            "scores": scores,
            "entries": shape.num_layers * layer.entry,
            "logits": formula.tokens * shape.vocab_size * FP32,
        }
        flags = {
            "replicated": stage == 0,
            "zero2": stage == 2,
            "zero3": stage == 3,
            "offloads": techniques.offload_optimizer,
            "adapter": techniques.adapter is not None,
            "four_bit": techniques.quantization is not None,
            "recomputed": techniques.recomputation,
        }
        return Parts(
            **{name: size / GIB for name, size in sizes.items()},
            **{name: float(flag) for name, flag in flags.items()},
            layers=float(shape.num_layers),
            capacity=self.capacity,
        )


def reserved(p: Parts, h: Held) -> Any:
    """Return the GiB that the paper's software reserved; it takes numbers or arrays."""
    weights = p.weights * h.adapter_weights ** (p.adapter * p.replicated)
    copies = h.update_copies * (h.update_copies_4bit / h.update_copies) ** p.four_bit
    gathers_all = p.zero3 * (1 - p.offloads) * (1 - p.adapter)
    gradients = p.replicated * p.gradients * (1 + copies) + p.zero2 * p.gradients * h.whole_gradients
    gathered = gathers_all * p.gathered * h.whole_parameters
    gathered = gathered + (p.zero3 - gathers_all) * (h.buffers + h.layers_at_a_time * p.two_layers)
    layer = p.layer * h.layer + p.scores * h.scores
    kept = layer * p.layers ** (1 - p.recomputed) + p.recomputed * p.entries * h.entries + p.logits * h.logits
    held = weights + p.states + h.context + gradients + gathered + kept * h.adapter_activations**p.adapter
    return (held**-_SHARP + (p.capacity * h.capacity) ** -_SHARP) ** (-1 / _SHARP)


class MemoryRuns:
    """Cells as arrays, with the errors of any constants."""

    def __init__(self, cells: Sequence[MemoryCell], constants: Sequence[Constant]) -> None:
        self.cells, self._constants = list(cells), list(constants)

    @cached_property
    def _parts(self) -> Parts:
        found = [cell.parts for cell in self.cells]
        stacked: dict[str, Any] = {
            field.name: np.array([getattr(parts, field.name) for parts in found]) for field in fields(Parts)
        }
        return Parts(**stacked)

    def errors(self, logs: Vector) -> Vector:
        """Return the logarithms of predicted over printed memory."""
        made: dict[str, Any] = {}
        for one, log in zip(self._constants, logs, strict=True):
            mine = np.array([not one.machines or cell.hardware in one.machines for cell in self.cells])
            made[one.rate] = np.where(mine, np.exp(log), made.get(one.rate, 1.0))
        printed = np.array([cell.printed for cell in self.cells])
        return np.log(np.asarray(reserved(self._parts, Held(**made))) / printed)


def memory_constants() -> list[Constant]:
    """Return what is fitted, with round starts."""
    return [
        Constant(name, machines, spread, start)
        for name, (start, spread, groups) in _CONSTANTS.items()
        for machines in groups
    ]


def memory_cells() -> list[MemoryCell]:
    """Return the cells of tables III, IV and IX with a printed memory that does not contradict others."""
    return [cell for table in TASKS for cell in _of_table(table)]


def memory_method_left_out() -> tuple[list[MemoryCell], Vector]:
    """Return cells with the logarithms of predicted over printed memory, by constants that saw none of their method."""
    constants, cells = memory_constants(), memory_cells()
    begin = fitted(MemoryRuns(cells, constants), constants, starts(constants))
    judged, errors = [], []
    for method in sorted({cell.method for cell in cells}, key=sorted):
        out = [cell for cell in cells if cell.method == method]
        kept = [cell for cell in cells if cell.method != method]
        errors.append(MemoryRuns(out, constants).errors(fitted(MemoryRuns(kept, constants), constants, begin)))
        judged += out
    return judged, np.concatenate(errors)


def own_memory() -> tuple[Vector, int]:
    """Return the logarithms of predicted over allocated peaks in docs/results, and how many runs used what was said.

    These runs were on one card, by today's software, and nothing is fitted to them. Those in fp8 are left out: the plan
    counts what their layers would keep in bf16.
    """
    errors, within = [], 0
    for path in sorted(RESULTS.glob("*/*.csv")):
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            counts = row.get("peak_allocated_bytes") and row["engine"] != "script" and "fp8" not in row["precision"]
            fit = _fit(path, row) if counts else None
            if fit:
                errors.append(np.log(fit.tensors / float(row["peak_allocated_bytes"])))
                within += SLACK * fit.need <= float(row["peak_device_used_bytes"]) <= fit.most
    return np.array(errors), within


def memory_figures() -> Iterator[Figure]:
    """Yield the errors of memory: of the paper's cells with the method left out, and of this project's own runs."""
    own, within = own_memory()
    yield of_errors("median error of allocated peaks on one card", np.abs(np.expm1(own)), np.median, OWN_LIMITS[0])
    yield of_errors("their 95th percentile", np.abs(np.expm1(own)), lambda off: np.quantile(off, 0.95), OWN_LIMITS[1])
    yield rate("memory in use lies in what the plan says, or 2 % below", within, len(own))
    off = np.abs(np.expm1(memory_method_left_out()[1]))
    yield of_errors("median error of memory, one method left out", off, np.median, LIMITS[0])
    yield of_errors(
        "95th percentile of memory, one method left out", off, lambda off: np.quantile(off, 0.95), LIMITS[1]
    )


def _fit(path: Path, row: dict[str, str]) -> Fit | None:
    plan = own_cell(path, row).plan
    return fit_of(plan, plan.batch.micro)


def _of_table(table: str) -> Iterator[MemoryCell]:
    for row in read_table(f"table{table}"):
        if not row["memory_gb"] or is_odd(table, row):
            continue
        method = Method.parse(row["method"], TASKS[table])
        plan = paper_plans(table, row["model"], precision_of(method))[frozenset(method.codes)]
        micro, hardware = int(row["batch_size"]), row["hardware"]
        name = f"{table[:2]} {row['model']} {row['method']} {hardware} batch {micro}"
        yield MemoryCell(name, hardware, plan, micro, float(row["memory_gb"]), capacities()[hardware] / GIB)
