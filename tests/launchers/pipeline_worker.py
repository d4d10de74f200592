"""Run by torchrun: trains each plan named on the command line in turn as a pipeline of engine=torch and writes what it observed as JSON.

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
from torch import distributed, nn

from llmexp.launchers.torch_native import build, join
from llmexp.measure.compilation import Compilation
from llmexp.plan.run_plan import RunPlan


def observe(plan: RunPlan, rank: int) -> dict[str, Any]:
    training = build(plan, CPU)
    layout, norms = training.layout, []
    update = layout.optimizer.step

    def step() -> None:
        squares = torch.nn.utils.get_total_norm([parameter.grad for parameter in layout.trained]).double() ** 2
        distributed.all_reduce(squares, group=layout.ranks)
        norms.append(squares.sqrt().item())
        update()

    layout.optimizer.step = step
    compiled, before = "C" in plan.method.split("+"), Compilation.so_far()
    layers = [module for name, module in training.module.named_modules() if name.endswith(".mlp") and not compiled]
    observed = scheduled.train(training, layers, plan, rank, profiled=not compiled)
    return observed | {
        "gradient_norms": norms,
        "parameter_norms": {name: norm for stage in layout.stages for name, norm in _norms(stage.model)},
        "trainable_parameters": training.trainable_parameters,
        "compiled_graphs": Compilation.so_far().graphs - before.graphs,
        "graph_breaks": Compilation.so_far().graph_breaks - before.graph_breaks,
    }


def _norms(model: nn.Module) -> list[tuple[str, float]]:
    return [(name, parameter.detach().norm().item()) for name, parameter in model.named_parameters() if parameter.requires_grad]


def main() -> None:
    target, paths = Path(sys.argv[1]), sys.argv[2:]
    join(CPU)
    rank = distributed.get_rank()
    found = {Path(path).stem: observe(RunPlan.read(Path(path)), rank) for path in paths}
    target.with_suffix(f".{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
