"""The formats of a served run's weights and cache, by the knobs of its engine."""

from __future__ import annotations

from collections.abc import Mapping

from llmexp.dtypes import HALF, bytes_of
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.held import Formats

# What servers' knobs call formats whose speed is known.
QUANTIZED: Mapping[str, str] = {
    "fp8": "fp8",
    "gptq": "int4",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq_marlin": "int4",
}
CACHES: Mapping[str, int] = {"auto": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}


def formats_of(plan: ServingPlan) -> Formats:
    """Return the formats; `unpredicted` has to have nothing to say of them."""
    options = plan.config.engine.options
    weights = QUANTIZED[options["quantization"]] if options.get("quantization") else HALF
    return Formats(weights, bytes_of(HALF), CACHES[options.get("kv_dtype") or "auto"])
