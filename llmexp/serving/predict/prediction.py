"""A served run's predicted throughput, TPOT and TTFT by load, with intervals from sources that were held out."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from llmexp.record.predicted import PredictedLoad, Prediction
from llmexp.serving.plan.lengths import LengthDraw
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.predict.batching import Limits, Load, LoadOutcome, Server
from llmexp.serving.predict.formats import formats_of
from llmexp.serving.predict.held import Held, held, model_architecture
from llmexp.serving.predict.interval import ends_of
from llmexp.serving.predict.limits import PREFILL, cache_room, memory_share, most_at_once
from llmexp.serving.predict.rates import LOOPS, rates_of, source_of, without_graphs
from llmexp.serving.predict.unpredicted import reason

_SOURCE = "published servers and {}"


def predict(plan: ServingPlan) -> Prediction | None:
    """Predict what each load gets; None where `unpredicted` gives a reason."""
    if unpredicted(plan):
        return None
    server, copies = server_of(plan), plan.config.parallelism.dp
    points = [point for point in plan.points if point.follows == "rate"]
    found = [(point, server.outcome(load_of(plan, point))) for point in points]
    # A search goes up to what the server can do.
    outcomes = [outcome for _, outcome in found] or [server.outcome(request_of(plan))]
    best = max(outcomes, key=lambda outcome: outcome.output_tokens_per_s)
    rate, ends = copies * best.output_tokens_per_s, ends_of("throughput")
    most_per_s = copies * server.saturation_per_s(request_of(plan))
    return Prediction(
        rate=rate,
        low=ends.low * rate,
        high=ends.high * rate,
        held_out_runs=ends.rows,
        source=_SOURCE.format(source_of(plan.config.hardware)),
        parts_s=_parts_s(best),
        work_s=_work_s(plan, found),
        loads=[_of_load(point, outcome, copies, most_per_s) for point, outcome in found],
        saturation_per_s=most_per_s,
    )


def unpredicted(plan: ServingPlan) -> str:
    """Say in a few words why a run is not predicted; empty where it is."""
    return reason(plan) or ("" if room_of(plan) > 0 else "the weights leave no room for keys and values")


def server_of(plan: ServingPlan) -> Server:
    """Return one copy of the model on its devices."""
    config, part = plan.config, held_of(plan)
    engine, options = config.engine.name, config.engine.options
    has_graphs = options.get("compile") is not False and options.get("cuda_graphs") is not False
    rates = rates_of(config.hardware, part.formats.weights, LOOPS[engine], part.cards)
    rates = rates if has_graphs else without_graphs(rates)
    requests = int(options.get("max_sequences") or most_at_once(engine, config.hardware))
    prefill = int(options.get("max_batch_tokens") or options.get("chunked_prefill_tokens") or PREFILL)
    return Server(part, rates, Limits(requests, prefill, _room(plan, part)))


def load_of(plan: ServingPlan, point: LoadPoint) -> Load:
    """Return what one copy of the model gets of a load point."""
    copies = plan.config.parallelism.dp
    return replace(
        request_of(plan),
        requests=ceil(point.requests / copies),
        rate_per_s=point.rate_per_s / copies if point.rate_per_s else None,
        concurrency=ceil(point.concurrency / copies) if point.concurrency else None,
    )


def request_of(plan: ServingPlan) -> Load:
    """Return an endless load of the plan's requests."""
    serve = plan.config.serve
    return Load(
        prompt=LengthDraw.of(serve.prompt).distribution.mean,
        output=LengthDraw.of(serve.output).distribution.mean,
        varied=serve.output.kind != "fixed",
    )


def held_of(plan: ServingPlan) -> Held:
    """Return what one device of the plan's server holds."""
    return held(model_architecture(plan.config.model), plan.config.parallelism.tp, formats_of(plan))


def room_of(plan: ServingPlan) -> float:
    """Return the bytes of a device that keys and values may take; negative where the weights leave none."""
    return _room(plan, held_of(plan))


def _room(plan: ServingPlan, part: Held) -> float:
    return cache_room(plan.config.hardware, part.weights_bytes, memory_share(plan.config.engine.options))


def _of_load(point: LoadPoint, outcome: LoadOutcome, copies: int, most_per_s: float) -> PredictedLoad:
    rate, tpot, ttft = (ends_of("throughput"), ends_of("tpot"), ends_of("ttft"))
    tokens = copies * outcome.output_tokens_per_s
    # A load that the server sustains gets what it asks for, unless the server is slower than predicted.
    low, high = rate.low, rate.high
    if point.rate_per_s and not outcome.saturated:
        low, high = min(1.0, rate.low * most_per_s / point.rate_per_s), 1.0
    return PredictedLoad(
        load=str(point),
        rate=tokens,
        low=low * tokens,
        high=high * tokens,
        tpot_s=outcome.tpot_s,
        tpot_low_s=tpot.low * outcome.tpot_s,
        tpot_high_s=tpot.high * outcome.tpot_s,
        ttft_s=outcome.ttft_s,
        ttft_low_s=ttft.low * outcome.ttft_s,
        ttft_high_s=ttft.high * outcome.ttft_s,
        in_flight=copies * outcome.in_flight,
        saturated=outcome.saturated,
    )


def _parts_s(outcome: LoadOutcome) -> dict[str, float]:
    """Return the seconds of a request by part; what its iterations do not need for tokens goes to prompts."""
    spent, tokens = outcome.spent, outcome.output_tokens_per_s / outcome.requests_per_s
    parts = {
        "products": spent.products,
        "keys and values": spent.cache,
        "elementwise": spent.elementwise,
        "communication": spent.communication,
        "server": spent.host,
    }
    of_tokens = {name: tokens * seconds for name, seconds in parts.items()}
    return of_tokens | {"prompts": max(outcome.life_s - sum(of_tokens.values()), 0.0)}


def _work_s(plan: ServingPlan, found: list[tuple[LoadPoint, LoadOutcome]]) -> float | None:
    """Return the seconds of a repeat's loads; None where some of them are not predicted."""
    if plan.config.serve.search or len(found) < len(plan.points):
        return None
    copies = plan.config.parallelism.dp
    return sum((point.warmup + point.samples) / (copies * outcome.requests_per_s) for point, outcome in found)
