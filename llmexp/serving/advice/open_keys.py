"""The keys of a server that a command line may leave open, and the values that make a predicted difference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import product

from llmexp.inputs.shape import shape_of
from llmexp.registry import get_engine
from llmexp.schema import HfModel
from llmexp.serving.engine import ServingEngine
from llmexp.serving.plan.serving_plan import ServingPlan

KeyValue = str | int | float
Settings = Mapping[str, KeyValue]

ENGINE, TP, DP = "engine", "parallelism.tp", "parallelism.dp"
_OPTION = "engine.options."
WEIGHTS, CACHE = f"{_OPTION}quantization", f"{_OPTION}kv_dtype"
AT_ONCE, FRACTION = f"{_OPTION}max_sequences", f"{_OPTION}memory_fraction"
CHUNKS = (f"{_OPTION}max_batch_tokens", f"{_OPTION}chunked_prefill_tokens")
# Of a device's memory, where a server's own default leaves a tenth free.
_MORE_MEMORY = 0.95
# Tokens of prompts in an iteration, below and above what servers take by themselves.
_CHUNK_TOKENS = (2048, 16384)
# Requests at a time that keep the time per token short.
_FEW_AT_ONCE = (8, 16, 24, 32, 48, 64, 96, 128, 192)
# What engines call the formats whose speed is known; those of LightLLM have names of its own.
_WEIGHTS: Mapping[str, tuple[str, ...]] = dict.fromkeys(("vllm", "sglang", "tgi"), ("fp8", "awq"))
_CACHES: Mapping[str, str] = {"vllm": "fp8", "sglang": "fp8_e5m2", "tgi": "fp8_e5m2"}


def devices_of(plan: ServingPlan) -> int:
    """Return the devices that the hardware has."""
    return plan.config.hardware.devices_per_node * plan.config.hardware.nodes


def engine_of(plan: ServingPlan) -> ServingEngine:
    """Return the engine of a plan."""
    engine = get_engine(plan.config.task.name, plan.config.engine.name)
    assert isinstance(engine, ServingEngine)
    return engine


def layouts(plan: ServingPlan, engine: ServingEngine, fixed: Collection[str]) -> Iterator[Settings]:
    """Yield what decides what a device holds, for one copy of the model: degrees, formats, and its share of memory.

    The fewest settings come first.
    """
    choices: dict[str, tuple[KeyValue | None, ...]] = {
        TP: tuple(_degrees(plan)),
        WEIGHTS: (None, *_weights(plan, engine)),
        CACHE: (None, *([_CACHES[engine.name]] if engine.name in _CACHES else [])),
        FRACTION: (None, _MORE_MEMORY),
    }
    kept = {key: values for key, values in choices.items() if _is_open(key, engine, fixed)}
    found = [dict(zip(kept, values, strict=True)) for values in product(*kept.values())]
    for settings in sorted(found, key=lambda one: sum(value is not None for value in one.values())):
        yield {key: value for key, value in settings.items() if value is not None}


def limits(engine: ServingEngine, fixed: Collection[str], room: int, *, is_timed: bool) -> Iterator[Settings]:
    """Yield limits of what an engine does at a time: requests, up to those that have room, and tokens of prompts."""
    if _is_open(AT_ONCE, engine, fixed):
        yield from ({AT_ONCE: count} for count in (*(_FEW_AT_ONCE if is_timed else ()), room))
    for key in CHUNKS:
        if _is_open(key, engine, fixed):
            yield from ({key: tokens} for tokens in _CHUNK_TOKENS)


def copies_are_open(engine: ServingEngine, fixed: Collection[str]) -> bool:
    """Tell whether the engine may keep several copies of the model here."""
    return engine.has_replicas and DP not in fixed


def _is_open(key: str, engine: ServingEngine, fixed: Collection[str]) -> bool:
    return key not in fixed and (not key.startswith(_OPTION) or key.removeprefix(_OPTION) in engine.knobs)


def _degrees(plan: ServingPlan) -> Iterator[int]:
    """Yield the powers of two that cut the heads evenly over devices that there are."""
    shape, copies = shape_of(plan.config.model), plan.config.parallelism.dp
    degree = 1
    while degree * copies <= devices_of(plan):
        if shape is None or shape.num_heads % degree == 0:
            yield degree
        degree *= 2


def _weights(plan: ServingPlan, engine: ServingEngine) -> tuple[str, ...]:
    """Return the formats that weights can be had in: a checkpoint of 16 bits is cut to 8 when it is loaded."""
    known = _WEIGHTS.get(engine.name, ())
    return known[:1] if isinstance(plan.config.model, HfModel) else known
