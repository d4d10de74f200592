"""A step of decoding that the paper printed by part, beside its prediction: no constant is fitted to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.prediction.served import architecture, hardware
from llmexp.paper.printed import read_table
from llmexp.record.digits import rounded
from llmexp.serving.predict.held import held
from llmexp.serving.predict.iteration import Iteration, IterationTime, iteration_time
from llmexp.serving.predict.rates import rates_of

# Section VI-B; halfway through its 64 output tokens. Eight cards are the paper's server, whose use it does not print.
_REQUESTS, _CONTEXT, _CARDS = 1024, 512 + 32, 8
_TABLE = "table10_lightllm_module_time"
_PARTS = {
    "products": ("GeMM",),
    "keys and values": ("Triton",),
    "elementwise": ("Element-Wise", "RoPE", "RMSNorm"),
    "communication": ("AllReduce", "AllGather"),
}


def printed_ms() -> dict[str, float]:
    """Return the milliseconds of Table X by part."""
    tasks = {row["task"]: float(row["time_ms"]) for row in read_table(_TABLE) if row["row_type"] == "item"}
    return {part: sum(tasks[name] for name in names) for part, names in _PARTS.items()}


def predicted_ms(fitted: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the milliseconds that these constants predict of it, the server's host left out."""
    part = held(architecture("llama2-7b"), _CARDS)
    rates = rates_of(hardware("a800"), "bf16", "python", _CARDS, fitted)
    found: IterationTime = iteration_time(part, rates, Iteration(_REQUESTS, _CONTEXT))
    parts = (found.products, found.cache, found.elementwise, found.communication)
    return {name: 1e3 * seconds for name, seconds in zip(_PARTS, parts, strict=True)}


def table(fitted: Mapping[str, float] | None = None) -> Iterator[str]:
    """Yield both as lines of Markdown."""
    printed, predicted = printed_ms(), predicted_ms(fitted)
    yield "The paper's Table X has a step of LightLLM by part: Llama 2 7B, 1024 requests of 512 tokens, on A800. No"
    yield "constant is fitted to it. Its number of cards, eight, is assumed."
    yield ""
    yield "| part | printed, ms | predicted, ms |"
    yield "|---|---:|---:|"
    for part, found in printed.items():
        yield f"| {part} | {rounded(found)} | {rounded(predicted[part])} |"
    yield f"| all of these | {rounded(sum(printed.values()))} | {rounded(sum(predicted.values()))} |"
