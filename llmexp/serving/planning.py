"""ServingRunConfig to ServingPlan: the server's command, the load points and what a server certainly holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from llmexp.dtypes import HALF, SINGLE, bytes_of
from llmexp.errors import ConfigError, unknown
from llmexp.inputs import files
from llmexp.launch.server_address import ServerAddress
from llmexp.record.memory import MemoryEstimate
from llmexp.record.plan import Command
from llmexp.record.run_id import identity
from llmexp.record.samples import StateBytes
from llmexp.record.skip import Skip, SkipCode
from llmexp.registry import engine_names, get_engine
from llmexp.schema import Dtype, HfModel
from llmexp.serving.config import ServingRunConfig
from llmexp.serving.config.load import PromptTexts
from llmexp.serving.config.run import ServeConfig
from llmexp.serving.engine import ServingEngine, ServingSpec
from llmexp.serving.plan.lengths import LengthDraw, longest_request
from llmexp.serving.plan.load_points import load_points
from llmexp.serving.plan.prompt_texts import check_texts
from llmexp.serving.plan.quality import check_quality
from llmexp.serving.plan.quantized import INT4
from llmexp.serving.plan.request_trace import load_trace
from llmexp.serving.plan.served_model import CheckpointModel, ServedModel, served_model, weight_parameters
from llmexp.serving.plan.server_plan import ServerPlan
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict import predict

# Larger folders of random weights are not worth their time and disk where the engine can draw weights itself.
LARGEST_FOLDER_BYTES = 4 * 10**9
# A KV cache that has no room for more requests at a time lets the others wait, as real servers do.
MOST_AT_ONCE = 256
# Knobs with which a device holds fewer bytes of weights than the dtype says.
HOLD_LESS = ("quantization", "weights_offload_gb", "experts_offload_gb", "gpu_layers")
# Of a server's plan: where its interpreter lies, and how what it holds is read.
_NOT_IN_ID: dict[str, Any] = {
    "python": True,
    "reported_memory": True,
    "key_variable": True,
    "form": {"words", "logprobs"},
}
# With fewer requests most rates near the capacity stay unknown (docs/results/verdicts.md, "Loads of a server").
FEWEST_OF_PROBE = 300
# The tokenizer of UTF-8 bytes, which is no place.
BYTES_TOKENIZER = "bytes"


def plan_serving(config: ServingRunConfig) -> ServingPlan:
    """Plan one run, which may be a skip; raises ConfigError for a configuration that cannot run."""
    engine = get_engine(config.task.name, config.engine.name)
    assert isinstance(engine, ServingEngine)
    served, points = served_of(config), load_points(config.serve)
    _check_knobs(config, engine)
    lacks = engine.unsupported(served)
    # A run that is skipped has a plan too: of the server without the knobs that it lacks.
    had = {name: value for name, value in served.knobs.items() if name in engine.knobs}
    known = replace(served, knobs=had)
    server = (_running if served.is_running else _started)(config, engine, known)
    server = server.model_copy(update={"reported_memory": engine.reported_memory(known)})
    if config.serve.sampling:
        server = server.model_copy(update={"form": server.form.drawing(engine.drawn_by(config.serve.sampling))})
    if served.is_checkpoint:
        server = server.model_copy(update={"form": server.form.model_copy(update={"words": False})})
        _check_turns(config, server)
    made = ServingPlan(
        id=identity(config, {}, {"server": _measured(server)} | _contents(config, served.model)),
        processes=1,
        devices=served.every_device,
        memory=_memory(served),
        engine_config={},
        command=engine.command(config),
        skip=Skip(code=SkipCode.UNSUPPORTED, reason=lacks) if lacks else None,
        config=config,
        server=server,
        dtype=config.serve.dtype if served.is_running else served.dtype,
        positions=served.positions,
        points=points,
    )
    return made if made.skip else made.model_copy(update={"predicted": predict(made)})


def warning_of(plan: ServingPlan) -> str:
    """Warn of a search whose probes have too few requests, or return an empty string."""
    serve = plan.config.serve
    if not serve.search or serve.requests >= FEWEST_OF_PROBE:
        return ""
    return (
        f"serve.requests={serve.requests}: a search needs {FEWEST_OF_PROBE} to 1000 requests a probe, "
        "or many rates stay unknown and the final interval is wide"
    )


def _measured(server: ServerPlan) -> dict[str, Any]:
    """Return what of a server's plan is measured; the words of its texts follow from the model."""
    return server.model_dump(mode="json", exclude=_NOT_IN_ID)


def _contents(config: ServingRunConfig, model: ServedModel) -> dict[str, str]:
    """Return the digests of the files of lengths and texts, of the trace, and of the checkpoint, as there are any."""
    own = config.model.path if isinstance(config.model, HfModel) else None
    places = [Path(place).expanduser() for place in config.inputs if place != own]
    paths = [path for place in places for path in (files.below(place) if place.is_dir() else [place])]
    # A hub name is no file here.
    found = {"files": files.digest(path for path in paths if path.exists())} if places else {}
    return found | ({"checkpoint": model.digest} if isinstance(model, CheckpointModel) else {})


def _check_turns(config: ServingRunConfig, server: ServerPlan) -> None:
    """Raise ConfigError for conversations with a server of a usual tokenizer that takes text."""
    if config.serve.turns > 1 and not server.form.token_ids:
        raise ConfigError(
            f"serve.turns={config.serve.turns}: the next prompt has the answer's token ids, and engine="
            f"{config.engine.name} returns only text, from which a usual tokenizer does not recover the tokens: use "
            f"vllm or lightllm, or a model that is given by its sizes"
        )


def _check_knobs(config: ServingRunConfig, engine: ServingEngine) -> None:
    """Raise ConfigError for an option that no engine has; one that another engine has is a reason for a skip."""
    engines = (get_engine(config.task.name, name) for name in engine_names(config.task.name))
    known = {knob for each in engines if isinstance(each, ServingEngine) for knob in each.knobs}
    wrong = next((name for name in config.engine.options if name not in known), None)
    if wrong:
        raise unknown(f"engine.options of engine={engine.name}", wrong, sorted(engine.knobs))


def served_of(config: ServingRunConfig) -> ServingSpec:
    """Return what the server has to hold; raises ConfigError where the model has no room for a request."""
    serve, model = config.serve, served_model(config.model)
    is_checkpoint = isinstance(model, CheckpointModel)
    _check_checkpoint(config, is_checkpoint)
    positions = _positions(serve, model, is_checkpoint)
    check_quality(config, model, positions)
    dtype: Dtype = serve.dtype or (SINGLE if config.hardware.device == "cpu" else HALF)
    return ServingSpec(
        model=model,
        dtype=dtype,
        device=config.hardware.device,
        positions=positions,
        requests=_most_at_work(serve) * serve.answers,
        devices=config.parallelism.tp,
        stages=config.parallelism.pp,
        replicas=config.parallelism.dp,
        adapters=serve.adapters,
        samples=serve.sampling is not None,
        answers=serve.answers,
        beams=serve.beams,
        seed=config.seed,
        is_checkpoint=is_checkpoint,
        own_weights=not is_checkpoint and _draws_own(config, weight_bytes(model, dtype)),
        knobs=config.engine.options,
        profile=serve.profile,
        elsewhere=config.engine.python is not None,
        is_running=serve.address is not None,
    )


def _positions(serve: ServeConfig, model: ServedModel, is_checkpoint: bool) -> int:
    """Return the tokens of the longest request; raises ConfigError where the model has no room for it."""
    most = model.max_positions
    if serve.texts:
        return _positions_of_texts(serve, serve.texts, model, is_checkpoint)
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
    return positions


def _positions_of_texts(serve: ServeConfig, texts: PromptTexts, model: ServedModel, is_checkpoint: bool) -> int:
    """Return the most tokens of a text with its output: how long texts are is known when they are tokens."""
    if is_checkpoint and texts.tokenizer:
        raise ConfigError(f"serve.texts.tokenizer={texts.tokenizer}: model={model.name} has its own: leave it out")
    if not (is_checkpoint or texts.tokenizer):
        raise ConfigError(
            f"serve.texts.path={texts.path}: model={model.name} is random and has no tokenizer for texts: set "
            "serve.texts.tokenizer=<folder or hub name> of one that its vocabulary has room for, or =bytes"
        )
    if texts.max_tokens and texts.max_tokens > model.max_positions:
        raise ConfigError(
            f"serve.texts.max_tokens={texts.max_tokens} is more than model.max_positions={model.max_positions}"
        )
    if texts.tokenizer and texts.tokenizer != BYTES_TOKENIZER:
        files.check_place("serve.texts.tokenizer", texts.tokenizer)
    check_texts(texts)
    return texts.max_tokens or model.max_positions


def _check_checkpoint(config: ServingRunConfig, is_checkpoint: bool) -> None:
    """Raise ConfigError for what only a model of random weights can have."""
    if not is_checkpoint:
        return
    serve = config.serve
    if serve.weights == "own":
        raise ConfigError(f"serve.weights=own: model={config.model.name} has weights of its own: leave it out")
    if serve.adapters:
        raise ConfigError(
            f"serve.adapters are random ones of a model that is given by its sizes, and model={config.model.name} is "
            "a checkpoint: leave one of them out"
        )


def _started(config: ServingRunConfig, engine: ServingEngine, served: ServingSpec) -> ServerPlan:
    """Return the plan of a server that is started; raises ConfigError for a name that only one elsewhere can have."""
    if config.serve.served_name is not None:
        raise ConfigError(
            f"serve.served_name={config.serve.served_name} applies to a server that already runs: add serve.address, "
            f"or leave it out"
        )
    return engine.server(served).model_copy(update={"python": config.engine.python})


def _running(config: ServingRunConfig, engine: ServingEngine, served: ServingSpec) -> ServerPlan:
    """Return the plan of a server that runs already; raises ConfigError for what would only change its start."""
    serve = config.serve
    assert serve.address
    _check_address(serve.address)
    if serve.adapters:
        raise ConfigError(
            "serve.adapters are passed to a server when it starts, and the one at serve.address already runs: leave "
            "one out"
        )
    for name, given in served.knobs.items():
        if name not in engine.form_knobs and given not in (None, ""):
            raise ConfigError(
                f"engine.options.{name}={given} says how to start a server, and the one at serve.address already "
                f"runs: leave it out"
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


def weight_bytes(model: ServedModel, dtype: Dtype) -> int:
    """Return the bytes of all weights in a dtype."""
    return weight_parameters(model) * bytes_of(dtype)


def _most_at_work(serve: ServeConfig) -> int:
    """Return the most requests that may be at work at a time; how many a search sends is not known."""
    if serve.search:
        return MOST_AT_ONCE
    return min(max(point.at_work for point in load_points(serve)), MOST_AT_ONCE)


def _draws_own(config: ServingRunConfig, weights: int) -> bool:
    wanted, is_written = config.serve.weights, config.engine.options.get("quantization") in INT4
    needs_folder = is_written or config.serve.quality is not None
    return wanted == "own" or (wanted == "auto" and weights > LARGEST_FOLDER_BYTES and not needs_folder)


def _memory(served: ServingSpec) -> MemoryEstimate | None:
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
