"""Run by torchrun: trains each method named on the command line in turn and writes what it observed as JSON.

Arguments: the output file, then plan files of one engine. One process for all methods, because starting ranks costs more than training.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from llmexp.launchers import data, models
from llmexp.launchers.optimizer_state import local
from llmexp.launchers.rank import device_of
from llmexp.launchers.state_watch import StateWatch
from llmexp.measure import memory
from llmexp.measure.compilation import Compilation
from llmexp.measure.kernels import KernelProbe
from llmexp.plan.run_plan import RunPlan

STEPS = 20
# Of a run without a learning rate, which does the same in each.
STILL_STEPS = 4


def observe(plan: RunPlan, training: Any, rank: int, device: torch.device) -> dict[str, Any]:
    calls, positions = {"layers": 0}, set()
    # A hook inside a layer would be compiled with it, and change what C makes of it.
    for layer in () if "C" in plan.method.split("+") else models.transformer(training.module).model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: calls.update(layers=calls["layers"] + 1))
        layer.mlp.register_forward_pre_hook(lambda _, inputs: positions.add(inputs[0].shape[1]))
    sequences = data.load(plan.config.data, training.vocab_size, plan.batch.global_, plan.config.seed)
    batches = data.batches(sequences, plan.dims.replica_of(rank), plan.dims.dp, plan.batch, device)
    watch, probe, losses, graphs = StateWatch(training, device), KernelProbe(), [], []
    before, computing, allocated, frozen = Compilation.so_far(), 0, 0, frozen_digest(training)
    for step in range(STEPS if plan.config.optimizer.lr else STILL_STEPS):
        passes = next(batches)
        trainable = watch if step == 0 else training
        # Compiling would be profiled with the first step.
        with probe.watch() if step == (1 if "C" in plan.method.split("+") else 0) else torch.enable_grad():
            mean = torch.zeros((), dtype=torch.float64, device=device)
            for batch in passes:
                loss = trainable.forward(batch)
                computing = memory.bytes_of(training.state_tensors()["parameters"], device).device if step == 0 else computing
                allocated = memory.current_bytes(device)() if step == 0 else allocated
                trainable.backward(loss)
                if step == 0:
                    gradients = {gradient.data_ptr(): gradient for gradient in training.state_tensors()["gradients"]}
                    squares = sum(gradient.double().square().sum().item() for gradient in gradients.values())
                trainable.step()
                mean += loss.detach().double() / len(passes)
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / plan.dims.world_size)
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
        "allocated_after_forward_bytes": allocated,
        "compiled_graphs": graphs,
        "graph_breaks": Compilation.so_far().graph_breaks - before.graph_breaks,
        "state": {kind: size.model_dump() for kind, size in watch.state.items()},
        "parameters": training.parameters,
        "trainable_parameters": training.trainable_parameters,
        "frozen_digests": [frozen, frozen_digest(training)],
        "trained_names": [name for name, parameter in training.module.named_parameters() if parameter.requires_grad],
        "what_ran": training.what_ran(),
    }


def frozen_digest(training: Any) -> str:
    """Of all that this rank holds and does not train, to the bit."""
    digest = hashlib.sha256()
    for parameter in training.module.parameters():
        if not parameter.requires_grad:
            held = local(getattr(parameter, "ds_tensor", parameter))
            digest.update(held.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    target, plans = Path(sys.argv[1]), {Path(path).stem: RunPlan.read(Path(path)) for path in sys.argv[2:]}
    first = next(iter(plans.values()))
    # The engine's worker stands before the folder in its command.
    launcher = importlib.import_module(first.command.argv[-2])
    device = device_of(first.config.hardware, int(os.environ["LOCAL_RANK"]))
    launcher.join(device)
    rank = torch.distributed.get_rank()
    found = {}
    for name, plan in plans.items():
        torch.compiler.reset()  # each method compiles for itself, as in a process of its own
        found[name] = observe(plan, launcher.build(plan, device), rank, device)
        gc.collect()
    target.with_suffix(f".{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
