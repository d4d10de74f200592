"""Breaks the training of the ranks, where LLMEXP_FAULT names a fault; Python imports this file as it starts.

`python -m benchmarks.trainings` puts its folder on PYTHONPATH, to see which faults a comparison of two runs finds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Patch = Callable[[Any], None]


class _PatchedOnce(MetaPathFinder):
    """Patches one module when it has been imported."""

    def __init__(self, name: str, patch: Patch) -> None:
        self._name, self._patch = name, patch

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec
        assert spec.loader
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            self._patch(module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


def on_engine(change: Callable[[Any], None]) -> Patch:
    """Return a patch that changes the built engine before anything is measured."""

    def patch(measuring: Any) -> None:
        measure = measuring.measure_training

        def measure_changed(plan: Any, rank: Any, engine: Any, device: Any) -> Any:
            change(engine)
            return measure(plan, rank, engine, device)

        measuring.measure_training = measure_changed

    return patch


def learns_at(factor: float) -> Callable[[Any], None]:
    """Return a change of the learning rate."""

    def change(engine: Any) -> None:
        for group in engine._base_optimizer.param_groups:
            group["lr"] *= factor

    return change


def without_gradients(of: str) -> Callable[[Any], None]:
    """Return a change that drops the gradients of the parameters whose names hold a text."""

    def change(engine: Any) -> None:
        step = engine.step

        def patched() -> None:
            for name, parameter in engine.module.named_parameters():
                if of in name and parameter.grad is not None:
                    parameter.grad.zero_()
            step()

        engine.step = patched

    return change


def of_the_last_pass(engine: Any) -> None:
    """Forget the gradients of all passes of a step but the last one."""
    step = engine.step

    def patched() -> None:
        if not engine._completes:
            engine.layout.optimizer.zero_grad()
        step()

    engine.step = patched


def summed_over_passes(engine: Any) -> None:
    """Add the gradients of the passes up, instead of averaging them."""
    backward = engine.backward
    engine.backward = lambda loss: backward(loss * engine._accumulation)


def products_in_bf16(engine: Any) -> None:
    """Compute matrix products in bf16, as autocast does."""
    import torch

    forward = engine.forward

    def patched(batch: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return forward(batch)

    engine.forward = patched


def reordered(order: Callable[[list[Any]], Sequence[Any]]) -> Patch:
    """Return a patch that gives out each two steps' passes in another way."""

    def patch(loader: Any) -> None:
        batches = loader.batches

        def patched(*args: Any, **kwargs: Any) -> Any:
            steps = batches(*args, **kwargs)
            while True:
                yield from order([next(steps), next(steps)])

        loader.batches = patched

    return patch


MEASURING, LOADER = "llmexp.launchers.training.measuring", "llmexp.launchers.data.loader"
FAULTS: dict[str, tuple[str, Patch]] = {
    "no update": (MEASURING, on_engine(learns_at(0.0))),
    "half the learning rate": (MEASURING, on_engine(learns_at(0.5))),
    "gradients summed over passes": (MEASURING, on_engine(summed_over_passes)),
    "gradients of the last pass alone": (MEASURING, on_engine(of_the_last_pass)),
    "one layer without gradients": (MEASURING, on_engine(without_gradients(".layers.1."))),
    "norms without gradients": (MEASURING, on_engine(without_gradients("norm"))),
    "products in bf16": (MEASURING, on_engine(products_in_bf16)),
    "neighboring steps swapped": (LOADER, reordered(lambda steps: steps[::-1])),
    "every second step reads the first's sequences": (LOADER, reordered(lambda steps: [steps[0], steps[0]])),
}

if (fault := os.environ.get("LLMEXP_FAULT")) and "torch_native" in " ".join(sys.orig_argv):
    sys.meta_path.insert(0, _PatchedOnce(*FAULTS[fault]))
