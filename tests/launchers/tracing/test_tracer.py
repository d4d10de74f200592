"""What is traced without memory is what lives in real ranks, and in the allocator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from marks import slow
from planning import Measurement, make_plan
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

from llmexp.launchers.tracing.tracer import trace
from llmexp.training.plan.traced_memory import PARTS, TracedMemory
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.traced_memory import trace_memory

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning"),
]
# Gloo holds what it has sent a moment longer. Scratch memory inside a kernel, as
# products in bf16 have on a CPU, is in no ledger.
WITHIN = 0.01
TINY = ("model=tiny", "hardware=cpu", "data.seq_len=128", "batch.micro=2")
ALONE = [
    ("F+R", "precision=bf16_mixed"),
    slow("Naive", "precision=fp32"),
    slow("RS", "precision=bf16_pure"),
    slow("L+F", "precision=bf16_pure task=finetune data=synthetic"),
    slow("QL+F", "precision=bf16_pure task=finetune data=synthetic"),
]
RANKS = 2
TOGETHER = [
    ("Z3", ""),
    slow("Naive", ""),
    slow("Z1", ""),
    slow("F+R+Z2", ""),
    slow("Z3", "batch.accumulation=2"),
    slow("Naive", "engine=deepspeed"),
    slow("Z1", "engine=deepspeed"),
    slow("Z2", "engine=deepspeed"),
    slow("Z3", "engine=deepspeed"),
]


def plan(method: str, words: str, ranks: int = 1) -> TrainingPlan:
    engine = [] if "engine=" in words else ["engine=torch"]
    return make_plan(*TINY, *engine, f"parallelism.dp={ranks}", f"method={method}", *words.split())


def real_trace(made: TrainingPlan) -> TracedMemory:
    """Of this process, with tensors that have content."""
    from llmexp.launchers.torch_native.worker import build

    return trace(made, build, lambda _: None)


def close(found: TracedMemory, real: TracedMemory) -> None:
    """Every part at every moment, by what lives then."""
    for step, expected in zip(found.steps, real.steps, strict=True):
        for moment in ("forward_end", "passes", "update"):
            mine, its = getattr(step, moment), getattr(expected, moment)
            for part in (*PARTS, "together"):
                assert getattr(mine, part) == pytest.approx(getattr(its, part), abs=WITHIN * its.together), moment


@pytest.mark.parametrize(("method", "words"), ALONE)
def test_tensors_without_content_live_as_long_as_real_ones(method: str, words: str) -> None:
    if "Q" in method:
        pytest.importorskip("bitsandbytes")
    made = plan(method, words)
    real = real_trace(made)
    assert real.steps[1].forward_end.activations > 0
    assert made.memory is not None
    update = real.steps[1].update
    assert update.parameters == pytest.approx(made.memory.parameters.device, rel=WITHIN)
    assert update.optimizer == pytest.approx(made.memory.optimizer.device, rel=WITHIN)
    # A gradient is there in both dtypes while it is copied.
    assert update.gradients >= (1 - WITHIN) * made.memory.gradients.device
    close(trace_memory(made), real)


@pytest.mark.parametrize(("method", "words"), TOGETHER)
def test_a_rank_alone_holds_what_it_holds_among_others(
    observe: Callable[..., Measurement], method: str, words: str
) -> None:
    made = plan(method, words, RANKS)
    (real, _) = observe({method: made}, RANKS, "traced_worker")[method]
    close(trace_memory(made), TracedMemory(**real))


@pytest.mark.parametrize("method", ["R", slow("Naive"), slow("F")])
def test_the_allocator_gives_what_the_ledger_lists(method: str) -> None:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        found = real_trace(plan(method, "precision=fp32"))
    allocated = max(_totals(profiled.profiler.kineto_results.experimental_event_tree()))  # type: ignore[union-attr]
    assert max(step.peak.together for step in found.steps) == pytest.approx(allocated, rel=WITHIN)


def _totals(events: Iterable[Any]) -> Iterator[int]:
    """The bytes allocated after each allocation while the profiler ran."""
    for event in events:
        if event.tag == _EventType.Allocation:
            yield event.extra_fields.total_allocated
        yield from _totals(event.children)


def test_the_fullest_moment_is_found_where_it_is() -> None:
    """Memory for a moment in the update, and memory that is emptied and filled again in place."""
    from llmexp.launchers.tracing.ledger import Ledger
    from llmexp.launchers.tracing.moments import StepMoments

    ledger = Ledger()
    timeline = StepMoments(ledger)
    with ledger.resizes(), ledger:
        held = torch.empty(100, dtype=torch.uint8)
        ledger.label("parameters", [held])
        timeline.begin_step()
        kept = torch.empty(10, dtype=torch.uint8)
        timeline.end_phase("forward")
        held.untyped_storage().resize_(0)
        brief = torch.empty(30, dtype=torch.uint8)
        del brief
        held.untyped_storage().resize_(100)
        del kept
        timeline.end_phase("backward")
        torch.empty(50, dtype=torch.uint8)
        timeline.end_phase("optimizer")
    (step,) = timeline.steps()
    assert (step.forward_end.parameters, step.forward_end.activations, step.forward_end.together) == (100, 10, 110)
    assert step.passes.together == 110
    assert (step.update.temporary, step.update.together) == (50, 150)
