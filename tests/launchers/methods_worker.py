"""Run by torchrun on 2 ranks: trains each method named on the command line in turn and writes what it observed as JSON.

Arguments: the output file, then plan files. One process for all methods, because starting ranks costs more than training the tiny model.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch

from llmexp.launchers import data
from llmexp.launchers.deepspeed import DeepSpeedTraining
from llmexp.launchers.ops import use_built_ops
from llmexp.launchers.rank import device_of
from llmexp.launchers.training import StateWatch
from llmexp.measure.compilation import Compilation
from llmexp.measure.kernels import KernelProbe
from llmexp.plan.run_plan import RunPlan

STEPS = 20


def observe(plan: RunPlan, rank: int, device: torch.device) -> dict[str, Any]:
    torch.compiler.reset()  # each method compiles for itself, as in a process of its own
    training = DeepSpeedTraining(plan, device)
    calls = {"layers": 0}
    # A hook inside a layer would be compiled with it, and change what C makes of it.
    for layer in () if "C" in plan.method.split("+") else training.module.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: calls.update(layers=calls["layers"] + 1))
    sequences = data.load(plan.config.data, training.vocab_size, plan.batch.global_, plan.config.seed)
    batches = data.batches(sequences, rank, plan.dims.dp, plan.batch, device)
    watch, probe, losses, graphs = StateWatch(training, device), KernelProbe(), [], []
    before = Compilation.so_far()
    for step in range(STEPS):
        (batch,) = next(batches)
        trainable = watch if step == 0 else training
        # Compiling would be profiled with the first step.
        with probe.watch() if step == (1 if "C" in plan.method.split("+") else 0) else torch.enable_grad():
            loss = trainable.forward(batch)
            trainable.backward(loss)
            trainable.step()
        mean = loss.detach().double()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / plan.dims.dp)
        graphs.append(Compilation.so_far().graphs - before.graphs)
        if step == 0:
            calls_per_step = calls["layers"]
    return {
        "losses": losses,
        "layer_calls": calls_per_step,
        "attention_kernel": probe.attention,
        "operators": probe.names,
        "compiled_graphs": graphs,
        "graph_breaks": Compilation.so_far().graph_breaks - before.graph_breaks,
        "state": {kind: size.model_dump() for kind, size in watch.state.items()},
        "parameters": training.parameters,
        "trainable_parameters": training.trainable_parameters,
        "trained_names": [name for name, parameter in training.module.named_parameters() if parameter.requires_grad],
        "what_ran": training.what_ran(),
    }


def main() -> None:
    target, plans = Path(sys.argv[1]), sys.argv[2:]
    use_built_ops()
    deepspeed.init_distributed()
    rank = torch.distributed.get_rank()
    found = {}
    for path in plans:
        plan = RunPlan.read(Path(path))
        found[Path(path).stem] = observe(plan, rank, device_of(plan.config.hardware, rank))
        gc.collect()
    target.with_suffix(f".{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
