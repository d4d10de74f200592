"""A worker (in_turn.py): the samples of some steps, as a run's loop writes them, and the state that the first has."""

from __future__ import annotations

import json
import time
from io import StringIO
from typing import Any

import stepping
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from llmexp.launchers.training.learning_rates import updates_of
from llmexp.launchers.training.state_watch import watch_over
from llmexp.measure.clock import clock_for
from llmexp.measure.compilation import Compilation
from llmexp.measure.loop import StepLoop
from llmexp.training.plan.training_plan import TrainingPlan


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    file, steps, before = StringIO(), plan.config.measure.steps + 1, Compilation.so_far().graphs
    watch = watch_over(training, device)
    loop = StepLoop(watch, clock_for(device), file, lambda: 0)
    loop.updates = updates_of(plan, training)
    batches = stepping.batches_of(plan, training, steps, device)
    # gloo's thread drops a sent gradient when it next gets to run; until then the watch would count it.
    letting_go = register_optimizer_step_pre_hook(lambda *_: time.sleep(0.05))
    loop.run(batches, range(1), warmup=False)
    letting_go.remove()
    first, loop.trainable = training.gradient_norm(), training
    loop.run(batches, range(1, steps), warmup=False)
    samples = [json.loads(line) for line in file.getvalue().splitlines()]
    told = {name: [sample[name] for sample in samples] for name in ("loss", "lr", "gradient_norm")}
    state = {kind: size.device for kind, size in watch.count.state.items()}
    graphs = Compilation.so_far().graphs - before
    return told | {"first": first, "state": state, "compiled_graphs": graphs, "what_ran": training.what_ran()}
