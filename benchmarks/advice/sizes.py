"""Which layout for which size: what advice finds for models and numbers of cards, all of it predicted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from benchmarks.advice.layouts import per_device, words_of
from benchmarks.advice.searched import fitting, rate_of
from llmexp.record.digits import GIB, rounded
from llmexp.training.advice.mathematics import changes_of
from llmexp.training.plan.fit import capacity_bytes, fit_of
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict import predict

HARDWARE, SEQ_LEN, SAMPLES, CARDS_OF_A_NODE = "h100", 4096, 1024, 8
MODELS = ("7b", "13b", "70b")
CARDS = (1, 8, 64, 512)
_HEAD = f"""\
Which layout for which size? This is the fastest option of each engine that may fit, for pre-training in `bf16_mixed`
with {SEQ_LEN} positions and {SAMPLES:,} sequences a step, on H100s in nodes of {CARDS_OF_A_NODE}. All of it is
predicted. `llmexp advise` answers for other cards, lengths and batches. Speeds are tokens/s of a card. Memory is what a
rank needs of {{capacity}} GiB, host memory what the states of O need of a node, whatever it has.
"""


def sizes_part() -> Iterator[str]:
    """Yield the table."""
    found = [(model, cards, fastest_of(model, cards)) for model, cards in product(MODELS, CARDS)]
    capacity = max(capacity_bytes(plan) or 0 for _, _, plans in found for plan in plans)
    yield _HEAD.format(capacity=round(capacity / GIB))
    yield "| model | cards | engine | layout | tokens/s | 90 % interval | memory, GiB | host memory, GiB |"
    yield "|---|---:|---|---|---:|---:|---:|---:|"
    for model, cards, plans in found:
        if not plans:
            yield f"| {model} | {cards} | | nothing fits | | | | |"
        for plan in plans:
            yield f"| {model} | {cards} | {' | '.join(_cells(plan))} |"


def fastest_of(model: str, cards: int) -> list[TrainingPlan]:
    """Return the fastest plan of each engine that keeps the mathematics, the fastest engine first."""
    nodes = -(-cards // CARDS_OF_A_NODE)
    machine = [f"hardware={HARDWARE}", f"hardware.nodes={nodes}", f"hardware.devices_per_node={cards // nodes}"]
    work = [f"model={model}", "precision=bf16_mixed", "data=synthetic", f"data.seq_len={SEQ_LEN}", "tracking=none"]
    plans = [plan for plan in fitting([*machine, *work], SAMPLES) if not list(changes_of(plan)) and rate_of(plan)]
    fastest = {plan.config.engine.name: plan for plan in sorted(plans, key=rate_of)}
    return sorted(fastest.values(), key=rate_of, reverse=True)


def _cells(plan: TrainingPlan) -> list[str]:
    prediction, fit = predict(plan), fit_of(plan, plan.batch.micro)
    assert prediction
    low, high = (rounded(end / plan.dims.world_size) for end in (prediction.low, prediction.high))
    need = rounded(fit.need / GIB) if fit else "-"
    host = rounded(plan.memory.host * plan.ranks_per_node / GIB) if plan.memory and plan.memory.host else ""
    return [plan.config.engine.name, words_of(plan), rounded(per_device(plan)), f"{low} to {high}", need, host]
