"""Constants fitted to runs: least squares on the logarithm of step times, robust, and drawn to where they start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np

from benchmarks.prediction.cells import Cell
from llmexp.training.predict.rates import Rates, constants
from llmexp.training.predict.schedule import step_time
from llmexp.training.predict.work import Work

Vector = np.ndarray[Any, np.dtype[np.float64]]
# Errors beyond this weigh less than their squares, as cells of the paper are off by more.
_ROBUST = 0.08
# How much it costs to leave the start by its own spread, in errors of one run.
_PRIOR = 0.05
# What is fitted, by the machines that share it, with the spread of its logarithm that is to be expected.
_RTX = ("rtx4090", "rtx3090_nvlink", "rtx3090")
_OWN: dict[str, tuple[float, dict[tuple[str, ...], float]]] = {
    "products_share": (0.1, {("a800",): 0.7, ("rtx4090",): 0.7, ("rtx3090_nvlink", "rtx3090"): 0.7}),
    "launch_s": (0.4, {("a800",): 1.0e-3, _RTX: 1.0e-3}),
    "link_bytes_per_s": (
        0.5,
        {("a800",): 120e9, ("rtx4090",): 1.5e9, ("rtx3090_nvlink",): 1.2e9, ("rtx3090",): 1.1e9},
    ),
    "host_s_per_parameter": (
        0.5,
        {("a800",): 1e-9, ("rtx4090",): 3e-9, ("rtx3090_nvlink",): 4e-9, ("rtx3090",): 4.5e-9},
    ),
    "host_zero3": (0.3, {("a800",): 1.4, _RTX: 1.4}),
    "fetch_s": (1.0, {("a800",): 0.05e-9, _RTX: 0.05e-9}),
    "zero3_layer_s": (1.0, {("a800",): 4e-3, _RTX: 4e-3}),
}
_SHARED = {
    "elementwise": (80.0, 0.5),
    "fused_elementwise": (0.9, 0.3),
    "compiled_elementwise": (0.25, 0.5),
    "megatron_elementwise": (0.8, 0.3),
    "backward_elementwise": (3.0, 0.4),
    "score_bytes": (60.0, 0.5),
    "backward_attention": (2.5, 0.5),
    "backward_products": (2.0, 0.2),
    "frozen_products": (1.0, 0.2),
    "dequantized_bytes": (20.0, 0.7),
    "adapter_launches": (1.5, 0.5),
    "fused_launches": (0.9, 0.3),
    "backward_launches": (3.0, 0.5),
    "fused_update": (1.2, 0.3),
    "unfused_update": (3.0, 0.3),
    "adapter_gradients": (2.0, 0.4),
    "overlap_replicated": (2.0, 0.5),
    "overlap_zero2": (1.0, 0.5),
    "overlap_zero3": (2.0, 0.5),
    "zero3_adapter": (3.0, 0.7),
    "zero3_again": (0.5, 0.3),
    "host_adapter": (1.0, 0.4),
}
# A machine without runs of its own has the mean of these over the fitted ones.
_TYPICAL = ("launch_s", "host_s_per_parameter", "host_zero3", "fetch_s", "zero3_layer_s")
# Hosts of cards that a switch links are servers of data centers; those of cards on PCIe take longer.
_SWITCHED, _OF_HOSTS = ("a800",), ("host_s_per_parameter",)


@dataclass(frozen=True)
class Constant:
    """One fitted number: the rate that it is, the machines that have it, and the spread that is expected of it."""

    rate: str
    machines: tuple[str, ...]
    spread: float
    start: float


def constants_to_fit() -> list[Constant]:
    """Return all fitted numbers with their starts, which are round figures of the right size."""
    own = [
        Constant(rate, machines, spread, start)
        for rate, (spread, starts) in _OWN.items()
        for machines, start in starts.items()
    ]
    return [*own, *(Constant(rate, (), spread, start) for rate, (start, spread) in _SHARED.items())]


class Fittable(Protocol):
    """What a fit asks of runs."""

    def errors(self, logs: Vector) -> Vector:
        """Return the logarithms of predicted over measured values with these logarithms of constants."""


class Runs:
    """Runs as arrays: what the schedule computes with, for all of them at once."""

    def __init__(
        self, cells: Sequence[Cell], constants: Sequence[Constant], known: Mapping[str, Any] | None = None
    ) -> None:
        self.cells, self._constants, self._known = list(cells), list(constants), known or _unfitted()

    @cached_property
    def work(self) -> Work:
        """The work of all runs."""
        works = [cell.work for cell in self.cells]
        stacked: dict[str, Any] = {
            field.name: np.array([getattr(work, field.name) for work in works]) for field in fields(Work)
        }
        return Work(**stacked)

    @cached_property
    def _carried(self) -> dict[str, Vector]:
        """The rates of all runs before any fit."""
        machines = [cell.rates(self._known) for cell in self.cells]
        return {
            field.name: np.array([float(getattr(rates, field.name)) for rates in machines]) for field in fields(Rates)
        }

    @cached_property
    def _rows(self) -> list[Vector]:
        """For each constant the runs that have it, as 0 and 1."""
        return [
            np.array([float(not one.machines or cell.hardware in one.machines) for cell in self.cells])
            for one in self._constants
        ]

    def rates(self, logs: Vector) -> Rates:
        """Return the rates of all runs with these logarithms of constants."""
        made = dict(self._carried)
        for one, rows, log in zip(self._constants, self._rows, logs, strict=True):
            made[one.rate] = np.where(rows > 0, np.exp(log), made[one.rate])
        # Both stream through memory, so that no fit depends on the one before.
        return Rates(**made | {"cast_accesses": made["fused_update"]})

    def errors(self, logs: Vector) -> Vector:
        """Return the logarithms of predicted over measured step times."""
        measured = np.array([cell.step_s for cell in self.cells])
        return np.log(np.asarray(step_time(self.work, self.rates(logs)).whole) / measured)

    def start(self, rate: str) -> float:
        """Return a rate of the first run before any fit."""
        return float(self._carried[rate][0])


def starts(constants: Sequence[Constant]) -> Vector:
    """Return the logarithms at which a fit begins."""
    return np.log(np.array([one.start for one in constants]))


def fitted(runs: Fittable, constants: Sequence[Constant], begin: Vector | None = None) -> Vector:
    """Return the logarithms of the constants by Gauss-Newton steps with damping (Levenberg and Marquardt)."""
    start, spreads = starts(constants), np.array([one.spread for one in constants])
    logs = start if begin is None else begin

    def residuals(at: Vector) -> Vector:
        return np.concatenate([_robust(runs.errors(at)), _PRIOR * (at - start) / spreads])

    damping, now = 1e-2, residuals(logs)
    for _ in range(60):
        jacobian = _jacobian(residuals, logs, now)
        square, gradient = jacobian.T @ jacobian, jacobian.T @ now
        better = None
        while better is None and damping < 1e6:
            step = -np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-9), gradient)
            tried = logs + np.clip(step, -0.5, 0.5)
            then = residuals(tried)
            if then @ then < now @ now:
                better = tried, then
            else:
                damping *= 4
        if better is None:
            break
        is_done = now @ now - better[1] @ better[1] < 1e-7 * (now @ now)
        (logs, now), damping = better, max(damping / 4, 1e-7)
        if is_done:
            break
    return logs


def _robust(errors: Vector) -> Vector:
    """Return errors whose squares grow like the error itself beyond _ROBUST."""
    return np.sign(errors) * _ROBUST * np.sqrt(2 * (np.sqrt(1 + (errors / _ROBUST) ** 2) - 1))


def _jacobian(of: Any, at: Vector, now: Vector) -> Vector:
    columns = []
    for place in range(len(at)):
        moved = at.copy()
        moved[place] += 1e-4
        columns.append((of(moved) - now) / 1e-4)
    return np.stack(columns, axis=1)


@cache
def _unfitted() -> dict[str, Any]:
    """Return what is carried, as if nothing had been fitted before: a fit must not depend on the one before."""
    known = deepcopy(constants())
    for rate in _TYPICAL:
        known["typical"][rate] = float(np.exp(np.mean(np.log(list(_OWN[rate][1].values())))))
    known["switched"] = {rate: _OWN[rate][1][_SWITCHED] for rate in _OF_HOSTS}
    return known


def known_of(constants_: Sequence[Constant], logs: Vector) -> dict[str, Any]:
    """Return what is carried, with these constants."""
    known = deepcopy(constants())
    for one, log in zip(constants_, logs, strict=True):
        value = float(f"{np.exp(log):.4g}")
        for machine in one.machines:
            known["hardware"].setdefault(machine, {})[one.rate] = value
        if not one.machines:
            known["shared"][one.rate] = value
    return known | _means(known)


def without_platform(known: Mapping[str, Any], platform: Sequence[str]) -> dict[str, Any]:
    """Return constants as they would be had nobody ever measured these machines."""
    left = deepcopy(dict(known))
    left["hardware"] = {name: rates for name, rates in known["hardware"].items() if name not in platform}
    return left | _means(left)


def _means(known: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the rates of a machine without runs of its own: means of the fitted ones, of hosts by their kind."""
    made: dict[str, dict[str, float]] = {"typical": dict(known["typical"]), "switched": {}}
    for rate in _TYPICAL:
        logs = {name: float(np.log(rates[rate])) for name, rates in known["hardware"].items() if rate in rates}
        kinds = {"switched": [logs[name] for name in _SWITCHED if name in logs and rate in _OF_HOSTS]}
        kinds["typical"] = [log for name, log in logs.items() if not kinds["switched"] or name not in _SWITCHED]
        for kind, of_machines in kinds.items():
            if of_machines:
                made[kind][rate] = float(f"{np.exp(np.mean(of_machines)):.4g}")
    return made
