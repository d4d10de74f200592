"""Run by torchrun: trains each plan named on the command line in turn on the megatron-core loop and writes what it observed as JSON.

Arguments: the output file, then plan files of one world size. One process for all plans, because starting ranks costs more than training.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from megatron.core import parallel_state

from llmexp.launchers import data
from llmexp.launchers.megatron import build, join
from llmexp.launchers.training import ScheduleWatch
from llmexp.measure.kernels import KernelProbe
from llmexp.measure.loop import train_step
from llmexp.plan.run_plan import RunPlan

STEPS = 4
CPU = torch.device("cpu")


def observe(plan: RunPlan, rank: int) -> dict[str, Any]:
    training = build(plan, CPU)
    calls, norms, phases = {"layers": 0}, [], []
    update = training.optimizer.step

    def step() -> None:
        training.optimizer.prepare_grads()
        norms.append(float(training.optimizer.get_grad_norm()))
        update()

    training.optimizer.step = step
    for stage in training.stages:
        for layer in stage.module.decoder.layers:
            layer.mlp.register_forward_pre_hook(lambda *_: calls.update(layers=calls["layers"] + 1))

    sequences = data.load(plan.config.data, training.vocab_size, STEPS * plan.batch.global_, plan.config.seed)
    batches = data.batches(sequences, plan.dims.replica_of(rank), plan.dims.dp, plan.batch, CPU)
    watch, probe, losses = ScheduleWatch(training, CPU), KernelProbe(), []
    with probe.watch():
        losses.append(train_step(watch, next(batches), lambda _: None))
    calls_per_step = calls["layers"]
    losses.append(train_step(training, next(batches), phases.append))
    losses += [train_step(training, next(batches), lambda _: None) for _ in range(STEPS - 2)]
    return {
        "losses": [torch.stack(each).mean().item() for each in losses],
        "gradient_norms": norms,
        "phases": phases,
        "layer_calls": calls_per_step,
        "attention_kernel": probe.attention,
        "operators": probe.names,
        "replica": parallel_state.get_data_parallel_rank(),
        "state": {kind: size.device for kind, size in watch.state.items()},
        "what_ran": training.what_ran(),
    }


def main() -> None:
    target, paths = Path(sys.argv[1]), sys.argv[2:]
    join(CPU)
    rank, found = torch.distributed.get_rank(), {}
    for path in paths:
        plan = RunPlan.read(Path(path))
        found[Path(path).stem] = observe(plan, rank)
        parallel_state.destroy_model_parallel()
    target.with_suffix(f".{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
