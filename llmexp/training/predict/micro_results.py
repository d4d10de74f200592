"""What runs of task=micro in the outputs folder measured, for the rates of predictions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from llmexp.errors import ConfigError
from llmexp.record.calibration import TASK, read_limits
from llmexp.record.result import RunResult
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.changed import as_filed


def micro_results(outputs: Path) -> Iterator[RunResult]:
    """Yield the successful runs of task=micro; a damaged result is left out."""
    for path in outputs.glob(f"*/{TASK}_*/result.json"):
        try:
            found = path.stat()
            result = _read(path, found.st_mtime_ns, found.st_size)
        except OSError:
            continue
        if result:
            yield result


def name_of(result: RunResult) -> str:
    """Return the name by which predictions mention a run."""
    return f"{result.sweep}/{TASK} {result.id}"


def card_rates(plan: TrainingPlan) -> tuple[dict[str, float], str] | None:
    """Return the rates of a plan's GPUs by the latest run on such a card, and the run's name; None without one.

    They are the shares of the data sheet's peak that the best products and the best fused attention reached. Bytes over
    links are known where that run had as many ranks on one node.
    """
    hardware = plan.config.hardware
    found = [
        result
        for result in micro_results(Path(plan.config.sweep.outputs))
        if result.environment.get("device_name") in hardware.device_names
    ]
    latest = max(found, key=lambda result: result.ended_at, default=None)
    rates = _rates(plan, latest) if latest else {}
    return (rates, name_of(latest)) if latest and rates else None


def _rates(plan: TrainingPlan, result: RunResult) -> dict[str, float]:
    hardware, products = as_filed(plan.config.hardware), plan.config.precision.products
    limits = {name: metric.mean for name, metric in result.metrics.items() if metric}
    peak, half = hardware.peak_flops_per_s[products], hardware.peak_flops_per_s.get("bf16")
    same_links = hardware.interconnect_bandwidth_bytes_per_s == plan.config.hardware.interconnect_bandwidth_bytes_per_s
    is_alike = same_links and result.processes == plan.dims.world_size <= hardware.devices_per_node
    made: dict[str, Any] = {
        "products_share": _over(limits.get(f"gemm_{products}_flops_per_s"), peak),
        "attention_share": _over(limits.get("attention_flash_forward_flops_per_s"), half),
        "link_bytes_per_s": limits.get("all_reduce_busbw_bytes_per_s") if is_alike else None,
    }
    return {name: rate for name, rate in made.items() if rate}


def _over(rate: float | None, peak: float | None) -> float | None:
    return min(1.0, rate / peak) if rate and peak else None


@lru_cache(maxsize=64)
def _read(path: Path, *stamp: int) -> RunResult | None:
    try:
        return read_limits(path)
    except ConfigError:
        return None
