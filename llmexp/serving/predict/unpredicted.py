"""What of a served run is not understood well enough to predict it, in a few words."""

from __future__ import annotations

from llmexp.dtypes import HALF
from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.hf_config import config_of
from llmexp.schema import HfModel
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.formats import CACHES, QUANTIZED
from llmexp.serving.predict.held import model_architecture
from llmexp.serving.predict.rates import LOOPS, missing

# Knobs that leave the speed of a server as it is, or that the prediction knows.
_KNOWN = frozenset(
    (
        *("block_size", "max_sequences", "max_batch_tokens", "chunked_prefill", "chunked_prefill_tokens"),
        *("memory_fraction", "prefix_caching", "scheduling", "kv_dtype", "quantization", "image", "program"),
        *("compile", "cuda_graphs"),
    )
)


def reason(plan: ServingPlan) -> str:
    """Say why a run is not predicted; empty where nothing is in the way."""
    return next(
        filter(None, (_of_machine(plan), _of_layout(plan), _of_server(plan), _of_load(plan), _of_model(plan))), ""
    )


def _of_machine(plan: ServingPlan) -> str:
    hardware = plan.config.hardware
    if hardware.device == "cpu":
        return "hardware=cpu is not predicted yet"
    lacking = missing(hardware, plan.config.parallelism.tp)
    return f"without {' and '.join(lacking)}" if lacking else ""


def _of_layout(plan: ServingPlan) -> str:
    if plan.config.parallelism.pp > 1:
        return "parallelism.pp is not predicted yet"
    return "several nodes are not predicted yet" if plan.config.hardware.nodes > 1 else ""


def _of_server(plan: ServingPlan) -> str:
    config, options = plan.config, plan.config.engine.options
    given = {name: value for name, value in options.items() if value not in (None, "")}
    other = next((name for name, value in given.items() if name not in _KNOWN), None)
    quantization, cache = given.get("quantization"), given.get("kv_dtype", "auto")
    reasons = {
        "a server that runs already is not predicted": plan.server.address is not None,
        f"engine={config.engine.name} is not predicted yet": config.engine.name not in LOOPS,
        f"engine.options.{other} is not predicted yet": other is not None,
        f"engine.options.quantization={quantization} is not predicted yet": quantization is not None
        and quantization not in QUANTIZED,
        f"engine.options.kv_dtype={cache} is not predicted yet": cache not in CACHES,
        f"serve.dtype={plan.dtype} is not predicted yet": plan.dtype != HALF,
        "serve.adapters are not predicted yet": config.serve.adapters is not None,
    }
    return next((words for words, is_so in reasons.items() if is_so), "")


def _of_load(plan: ServingPlan) -> str:
    serve = plan.config.serve
    reasons = {
        "serve.texts are not predicted: their lengths are not known before": serve.texts is not None,
        "serve.prefix is not predicted yet": serve.prefix is not None,
        "serve.turns is not predicted yet": serve.turns > 1,
        "serve.sampling.beams is not predicted yet": serve.beams > 1,
        "serve.sampling.n is not predicted yet": serve.answers > 1,
        "only loads of serve.rate, serve.concurrency and serve.search are predicted": not _has_loads(plan),
    }
    return next((words for words, is_so in reasons.items() if is_so), "")


def _of_model(plan: ServingPlan) -> str:
    model = plan.config.model
    if isinstance(model, HfModel) and (config_of(model) or {}).get("quantization_config"):
        return f"model={model.name} has quantized weights, which are not predicted yet"
    try:
        model_architecture(model)
    except UncountedError as error:
        return str(error)
    return ""


def _has_loads(plan: ServingPlan) -> bool:
    return plan.config.serve.search is not None or any(point.follows == "rate" for point in plan.points)
