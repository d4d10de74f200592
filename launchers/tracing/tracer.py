"""Two steps of a plan's rank, by the code that would run them, and what lives in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from llmexp.launchers.tracing.ledger import Ledger
from llmexp.launchers.tracing.moments import StepMoments
from llmexp.launchers.training.engine_kinds import RankEngine
from llmexp.measure.batch import MicroBatch
from llmexp.measure.loop import train_step
from llmexp.training.plan.traced_memory import TracedMemory
from llmexp.training.plan.training_plan import TrainingPlan

# Optimizers make their state in the first step.
STEPS = 2
Say = Callable[[str], None]
Build = Callable[[TrainingPlan, torch.device], RankEngine]


def trace(plan: TrainingPlan, build: Build, say: Say) -> TracedMemory:
    """Build the plan's rank on this CPU and take its steps; `say` tells how far it is.

    Whether tensors have content is the caller's choice.
    """
    began_s, device = time.monotonic(), torch.device("cpu")
    ledger = Ledger()
    timeline = StepMoments(ledger)
    with ledger.resizes(), ledger, _gradients_of_updates(ledger):
        say("building the model")
        engine = build(plan, device)
        _label(ledger, engine)
        for step in range(1, STEPS + 1):
            _take(plan, engine, timeline, partial(_say_step, say, step))
    first, second = timeline.steps()
    return TracedMemory(steps=(first, second), time_s=time.monotonic() - began_s, torch=torch.__version__)


def _take(plan: TrainingPlan, engine: RankEngine, timeline: StepMoments, say: Say) -> None:
    """Take one step on full sequences."""
    passes = [_batch(plan, engine.vocab_size) for _ in range(plan.batch.accumulation)]
    timeline.ledger.label("buffers", [tensor for batch in passes for tensor in (batch.input_ids, batch.labels)])
    timeline.begin_step()

    def end(phase: str) -> None:
        timeline.end_phase(phase)
        _label(timeline.ledger, engine)
        say(f"{phase} done")

    train_step(engine, passes, end)


def _batch(plan: TrainingPlan, vocab_size: int) -> MicroBatch:
    micro, seq_len = plan.batch.micro, plan.config.data.seq_len
    ids = torch.randint(vocab_size, (micro, seq_len))
    return MicroBatch(ids, ids.clone(), real_tokens=micro * seq_len, samples=micro)


def _label(ledger: Ledger, engine: RankEngine) -> None:
    """Tell the ledger which tensors hold state now."""
    found: dict[str, Any] = engine.state_tensors()
    ledger.label("engine", found.get("gathered", []))
    ledger.label("parameters", [*found["parameters"], *found.get("scales", [])])
    ledger.label("gradients", found["gradients"])
    ledger.label("optimizer", found["optimizer"])
    ledger.label("buffers", engine.module.buffers())


def _say_step(say: Say, step: int, words: str) -> None:
    say(f"step {step} of {STEPS}: {words}")


@contextmanager
def _gradients_of_updates(ledger: Ledger) -> Iterator[None]:
    """Count the gradients that an optimizer is given, which may be copies of the parameters', as gradients."""

    def label(optimizer: Optimizer, *_: Any) -> None:
        tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
        ledger.label("gradients", [tensor.grad for tensor in tensors if tensor.grad is not None])

    hook = register_optimizer_step_pre_hook(label)
    try:
        yield
    finally:
        hook.remove()
