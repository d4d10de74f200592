"""ServingRunConfig to ServingPlan: the server's command, the load points and what a server certainly holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from llmexp.engines import engine_names, get_engine
from llmexp.engines.serving.base import BYTES, Served, ServingEngine
from llmexp.errors import ConfigError, unknown
from llmexp.plan import files
from llmexp.plan.identity import identity
from llmexp.plan.lengths import LengthDraw, longest_request
from llmexp.plan.load_points import load_points
from llmexp.plan.quantised import INT4
from llmexp.plan.request_trace import load_trace
from llmexp.plan.server_address import ServerAddress
from llmexp.plan.server_plan import ServerPlan
from llmexp.plan.serving_plan import ServingPlan
from llmexp.plan.shape import shape_of
from llmexp.record.plan import Command, MemoryEstimate
from llmexp.record.samples import StateBytes
from llmexp.schema import DenseModel, Dtype, MixtralModel, ServingRunConfig
from llmexp.schema.serving import ServeConfig

# Larger folders of random weights are not worth their time and disk where the engine can draw weights itself.
LARGEST_FOLDER_BYTES = 4 * 10**9
# A KV cache that has no room for more requests at a time lets the others wait, as real servers do.
MOST_AT_ONCE = 256
# Knobs with which a device holds fewer bytes of weights than the dtype says.
HOLD_LESS = ("quantization", "weights_offload_gb", "experts_offload_gb", "gpu_layers")
# Of a server's plan: where its interpreter lies, and how what it holds is read.
_NOT_IN_ID = {"python", "holdings"}
# With fewer requests most rates near the capacity stay unknown (docs/numbers.md, "Loads of a server").
FEWEST_OF_PROBE = 300


def plan_serving(config: ServingRunConfig) -> ServingPlan:
    """Plan one run, which may be a skip; raises ConfigError for a configuration that cannot run."""
    engine = get_engine(config.task.name, config.engine.name)
    assert isinstance(engine, ServingEngine)
    served, points = served_of(config), load_points(config.serve)
    _check_knobs(config, engine)
    skip = engine.unsupported(served)
    # A run that is skipped has a plan too: of the server without the knobs that it lacks.
    had = {name: value for name, value in served.knobs.items() if name in engine.knobs}
    known = replace(served, knobs=had)
    server = (_running if served.is_running else _started)(config, engine, known)
    server = server.model_copy(update={"holdings": engine.holdings(known)})
    return ServingPlan(
        id=identity(config, {}, {"server": server.model_dump(mode="json", exclude=_NOT_IN_ID)} | _contents(config)),
        processes=1,
        devices=served.every_device,
        memory=_memory(served),
        engine_config={},
        command=engine.command(config),
        skip=skip,
        config=config,
        server=server,
        dtype=config.serve.dtype if served.is_running else served.dtype,
        positions=served.positions,
        points=points,
    )


def warning_of(plan: ServingPlan) -> str:
    """Warn of a search whose probes have too few requests, or return an empty string."""
    serve = plan.config.serve
    if not serve.search or serve.requests >= FEWEST_OF_PROBE:
        return ""
    return (
        f"serve.requests={serve.requests}: a search needs {FEWEST_OF_PROBE} to 1000 requests a probe, "
        "or many rates stay unknown and the interval that it ends with is wide"
    )


def _contents(config: ServingRunConfig) -> dict[str, str]:
    """Return the digest of the files of lengths and of the trace, where there are any."""
    paths = [Path(place).expanduser() for place in config.inputs]
    return {"files": files.digest(paths)} if paths else {}


def _check_knobs(config: ServingRunConfig, engine: ServingEngine) -> None:
    """Raise ConfigError for an option that no engine has; one that another engine has is a reason for a skip."""
    engines = (get_engine(config.task.name, name) for name in engine_names(config.task.name))
    known = {knob for each in engines if isinstance(each, ServingEngine) for knob in each.knobs}
    wrong = next((name for name in config.engine.options if name not in known), None)
    if wrong:
        raise unknown(f"engine.options of engine={engine.name}", wrong, sorted(engine.knobs))


def served_of(config: ServingRunConfig) -> Served:
    """Return what the server has to hold; raises ConfigError where the model has no room for a request."""
    serve, model = config.serve, config.sized_model
    most = model.max_positions
    positions = longest_request(
        LengthDraw.of(serve.prompt).longest,
        LengthDraw.of(serve.output).longest,
        most,
        prefix=serve.prefix.tokens if serve.prefix else 0,
        turns=serve.turns,
    )
    if serve.trace:
        trace = load_trace(serve.trace, serve.requests)
        trace.check_lengths(most)
        positions = max(positions, trace.longest)
    dtype: Dtype = serve.dtype or ("fp32" if config.hardware.device == "cpu" else "bf16")
    return Served(
        model=model,
        dtype=dtype,
        device=config.hardware.device,
        positions=positions,
        requests=_most_at_work(serve),
        devices=config.parallelism.tp,
        stages=config.parallelism.pp,
        replicas=config.parallelism.dp,
        adapters=serve.adapters,
        seed=config.seed,
        own_weights=_draws_own(config, weight_bytes(model, dtype)),
        knobs=config.engine.options,
        profile=serve.profile,
        is_running=serve.address is not None,
    )


def _started(config: ServingRunConfig, engine: ServingEngine, served: Served) -> ServerPlan:
    """Return the plan of a server that is started; raises ConfigError for a name that only one elsewhere can have."""
    if config.serve.served_name is not None:
        raise ConfigError(
            f"serve.served_name={config.serve.served_name} is of a server that runs already: add serve.address, or "
            "leave it out"
        )
    return engine.server(served).model_copy(update={"python": config.engine.python})


def _running(config: ServingRunConfig, engine: ServingEngine, served: Served) -> ServerPlan:
    """Return the plan of a server that runs already; raises ConfigError for what would only change its start."""
    serve = config.serve
    assert serve.address
    _check_address(serve.address)
    if serve.adapters:
        raise ConfigError(
            "serve.adapters are given to a server as it starts, and that of serve.address runs already: leave one out"
        )
    for name, given in served.knobs.items():
        if name not in engine.form_knobs and given not in (None, ""):
            raise ConfigError(
                f"engine.options.{name}={given} says how a server is started, and that of serve.address runs already: "
                "leave it out"
            )
    plan = engine.server(served)
    form = plan.form.of_model(serve.served_name) if serve.served_name else plan.form
    return plan.model_copy(
        update={"address": serve.address, "command": Command(argv=[]), "form": form, "container": None}
    )


def _check_address(address: str) -> None:
    try:
        ServerAddress.of(address)
    except ConfigError as error:
        raise ConfigError(f"serve.{error}") from None


def weight_bytes(model: DenseModel | MixtralModel, dtype: Dtype) -> int:
    """Return the bytes of all weights in a dtype."""
    shape = shape_of(model)
    assert shape
    return shape.parameters * BYTES[dtype]


def _most_at_work(serve: ServeConfig) -> int:
    """Return the most requests that may be at work at a time; how many a search sends is not known."""
    if serve.search:
        return MOST_AT_ONCE
    return min(max(point.at_work for point in load_points(serve)), MOST_AT_ONCE)


def _draws_own(config: ServingRunConfig, weights: int) -> bool:
    wanted, is_written = config.serve.weights, config.engine.options.get("quantization") in INT4
    return wanted == "own" or (wanted == "auto" and weights > LARGEST_FOLDER_BYTES and not is_written)


def _memory(served: Served) -> MemoryEstimate | None:
    """Return the weights of one device; the KV cache is what the server makes of the rest.

    None where a device may hold less: nothing is certain then.
    """
    if served.is_running or any(served.knobs.get(knob) for knob in HOLD_LESS):
        return None
    each = weight_bytes(served.model, served.dtype) // (served.devices * served.stages)
    words = f"{each / 1e9:.3g} GB of weights in {served.dtype}"
    return MemoryEstimate(
        parameters=StateBytes(device=each),
        gradients=StateBytes(),
        optimizer=StateBytes(),
        arithmetic=f"{words} on each of {served.every_device} devices" if served.every_device > 1 else words,
    )
