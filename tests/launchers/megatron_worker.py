"""Run by torchrun: trains each plan named on the command line in turn on the megatron-core loop and writes what it observed as JSON.

Arguments: the output file, then plan files of one world size. One process for all plans, because starting ranks costs more than training.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import scheduled
import torch
from alone import CPU
from megatron.core import parallel_state

from llmexp.launchers.megatron import build, join
from llmexp.plan.run_plan import RunPlan


def observe(plan: RunPlan, rank: int) -> dict[str, Any]:
    training = build(plan, CPU)
    norms, positions = [], set()
    update = training.optimizer.step

    def step() -> None:
        training.optimizer.prepare_grads()
        norms.append(float(training.optimizer.get_grad_norm()))
        update()

    training.optimizer.step = step
    blocks = [layer for stage in training.stages for layer in stage.module.decoder.layers]
    for block in blocks:
        block.self_attention.core_attention.register_forward_pre_hook(lambda _, inputs: positions.add(inputs[0].shape[0]))
    seen = scheduled.train(training, [block.mlp for block in blocks], plan, rank)
    return seen | {"gradient_norms": norms, "positions": sorted(positions), "replica": parallel_state.get_data_parallel_rank()}


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
