"""A worker (in_turn.py): what each plan's atoms did, held and computed."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from typing import Any

import stepping
import torch

from llmexp.launchers.models import building
from llmexp.launchers.training.optimizer_state import local
from llmexp.launchers.training.state_watch import StateWatch
from llmexp.measure import memory
from llmexp.measure.compilation import Compilation
from llmexp.measure.kernels import KernelProbe
from llmexp.training.plan.training_plan import TrainingPlan

STEPS = 4
# Of a run without a learning rate, which does the same in each, and is not profiled.
STILL_STEPS = 2


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    calls, positions = {"layers": 0}, set()
    # A hook inside a layer would be compiled with it, and change what C makes of it.
    for layer in () if "C" in plan.method.split("+") else building.transformer(training.module).model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: calls.update(layers=calls["layers"] + 1))
        layer.mlp.register_forward_pre_hook(lambda _, inputs: positions.add(inputs[0].shape[1]))
    batches = stepping.batches_of(plan, training, 1, device)
    watch, probe, losses, graphs, norm = StateWatch(training, device), KernelProbe(), [], [], None
    before, computing, frozen = Compilation.so_far(), 0, frozen_digest(training)
    allocated, kept = memory.current_bytes(device), 0
    # Compiling would be profiled with the first step.
    steps, profiled = (
        (STEPS, 1 if "C" in plan.method.split("+") else 0) if plan.config.optimizer.lr else (STILL_STEPS, None)
    )
    for step in range(steps):
        passes = next(batches)
        trainable = watch if step == 0 else training
        with probe.watch() if step == profiled else nullcontext():
            of_passes = []
            for batch in passes:
                # What earlier runs of this process left is in both readings, cuBLAS's workspace from the first step on.
                at_first = allocated()
                loss = trainable.forward(batch)
                kept = allocated() - at_first
                computing = (
                    memory.bytes_of(training.state_tensors()["parameters"], device).device if step == 0 else computing
                )
                trainable.backward(loss)
                if step == 0:
                    squares = sum_of_squares(training.state_tensors()["gradients"])
                trainable.step()
                of_passes.append(loss.detach())
        norm = training.gradient_norm() if step == 0 else norm
        losses.append(stepping.mean_loss(of_passes))
        graphs.append(Compilation.so_far().graphs - before.graphs)
        if step == 0:
            calls_per_step = calls["layers"]
    return {
        "losses": losses,
        "gradient_squares": squares,
        "positions": sorted(positions),
        "layer_calls": calls_per_step,
        "attention_kernel": probe.attention,
        "operators": probe.names,
        "parameter_bytes_after_forward": computing,
        "kept_by_forward_bytes": kept,
        "compiled_graphs": graphs,
        "graph_breaks": Compilation.so_far().graph_breaks - before.graph_breaks,
        "largest_update": watch.count.largest_update,
        "gradient_norm": norm,
        "state": {kind: size.model_dump() for kind, size in watch.count.state.items()},
        "parameters": training.parameters,
        "trainable_parameters": training.trainable_parameters,
        "frozen_digests": [frozen, frozen_digest(training)],
        "trained_names": [name for name, parameter in training.module.named_parameters() if parameter.requires_grad],
        "what_ran": training.what_ran(),
    }


def sum_of_squares(tensors: list[torch.Tensor]) -> float:
    """Of each once; not kept, because memory that they hold would be counted."""
    return sum(
        tensor.double().square().sum().item() for tensor in {tensor.data_ptr(): tensor for tensor in tensors}.values()
    )


def frozen_digest(training: Any) -> str:
    """Of all that this rank holds and does not train, to the bit."""
    digest = hashlib.sha256()
    for parameter in training.module.parameters():
        if not parameter.requires_grad:
            held = local(getattr(parameter, "ds_tensor", parameter))
            digest.update(held.contiguous().flatten().view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()
