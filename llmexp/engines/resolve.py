"""RunConfig to RunPlan: everything decided before a run starts, without torch and without touching a device."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from llmexp import __version__
from llmexp.engines import get_engine
from llmexp.engines.knobs import unfused, unmoved
from llmexp.engines.limits import unforked
from llmexp.errors import ConfigError, unknown
from llmexp.method import Method, Techniques
from llmexp.plan import files, instructions
from llmexp.plan.checkpoint import local_checkpoint
from llmexp.plan.dims import ParallelDims
from llmexp.plan.flops import computed_flops, flops_of, recomputed_flops_per_token
from llmexp.plan.growth import LengthSchedule, ungrowable
from llmexp.plan.kept import check_keeping
from llmexp.plan.memory import estimate
from llmexp.plan.moments import moment_bytes
from llmexp.plan.run_plan import AtomChange, RunPlan, identity
from llmexp.plan.shape import ModelShape, shape_of
from llmexp.plan.tokens import with_steps_of_budget
from llmexp.plan.trained import Trained, flops_per_token
from llmexp.record.tracking_uri import check_uri
from llmexp.schema import DataConfig, RunConfig


def resolve(config: RunConfig, overrides: Sequence[str] = ()) -> RunPlan:
    """Plan one run; `overrides` are the command line's words for it. Raises ConfigError for what cannot be; a skip is a plan too."""
    method = Method.parse(config.method, config.task.name)
    techniques = method.techniques
    engine = get_engine(config.engine.name)
    if config.engine.launcher not in engine.launchers:
        choices = ", ".join(engine.launchers)
        raise ConfigError(f"engine.launcher={config.engine.launcher} does not start engine={engine.name}: choices are {choices}")
    dims = ParallelDims.of(config, engine.schedules, engine.cp_chunks)
    config = with_steps_of_budget(config, dims)
    _check_fits_nodes(config, dims)
    shape, seq_len = _shape(config, method), LengthSchedule.of(config).of_mean_token
    built = shape if engine.builds_model else None
    trained = Trained.of(shape, techniques, config.adapter) if shape else None
    _check_positions(config)
    _check_tracker(config.tracking.uri)
    _check_targets(config, techniques, shape)
    check_keeping(config, techniques, dims, engine_keeps=engine.keeps_weights)
    whole = engine.recomputes_whole(techniques)
    computed = computed_flops(built, config, techniques, dims, whole=whole) if built else None
    storage, moments = engine.storage(config, techniques), moment_bytes(config, techniques)
    native = _merged(engine.native_config(config, techniques, dims), config.engine.options)
    return RunPlan(
        id=identity(config, str(method), native, _contents(config)),
        method=str(method),
        atoms=[AtomChange(code=atom.code, help=atom.help, sets=method.changes_of(atom)) for atom in method.atoms],
        dims=dims,
        batch=dims.batch(config.batch.micro, config.batch.accumulation),
        parameters=shape.parameters if shape else None,
        trainable_parameters=trained.trainable if trained else None,
        active_parameters=shape.active_parameters if shape else None,
        flops_per_token=flops_per_token(shape, seq_len, techniques, config.adapter) if shape else None,
        recomputed_flops_per_token=recomputed_flops_per_token(built, config, techniques, dims, whole=whole) if built else None,
        flops=flops_of(shape, config, techniques, computed) if shape else None,
        optimizer_state_bytes_per_parameter=moments,
        memory=estimate(built, storage, trained, dims) if built and trained and moments is not None else None,
        engine_config=native,
        command=engine.command(config, dims),
        rerun_command=shlex.join(["python", "-m", "llmexp", *overrides]),
        skip=_skip(config, techniques, dims),
        config=config,
        written_by=__version__,
    )


def _skip(config: RunConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """The first reason there is; what the engine itself lacks comes before the knobs beside its atoms."""
    lacks = _too_many_ranks(config, dims) or unforked(config) or ungrowable(config, techniques, dims)
    lacks = lacks or get_engine(config.engine.name).unsupported(config, techniques, dims)
    return lacks or unmoved(config, techniques, dims) or unfused(config, techniques, dims)


def _merged(native: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    nested = {key: _merged(native.get(key, {}), value) for key, value in options.items() if isinstance(value, dict)}
    return native | options | nested


def _shape(config: RunConfig, method: Method) -> ModelShape | None:
    """The model's shape; None where an atom's hook changes it in a way that only the built model shows."""
    return None if any(atom.model_hook for atom in method.atoms) else shape_of(config.model)


def _check_fits_nodes(config: RunConfig, dims: ParallelDims) -> None:
    hardware = config.hardware
    if dims.world_size % hardware.nodes:
        raise ConfigError(
            f"parallelism: {dims.arithmetic} cannot be shared out evenly over hardware.nodes={hardware.nodes}; set parallelism.dp or hardware.nodes"
        )


def _too_many_ranks(config: RunConfig, dims: ParallelDims) -> str | None:
    hardware = config.hardware
    if hardware.device == "cpu" or dims.world_size <= hardware.devices_per_node * hardware.nodes:
        return None
    return (
        f"parallelism: {dims.arithmetic}, but hardware={hardware.name} has {hardware.devices_per_node} devices a node, and "
        f"hardware.nodes={hardware.nodes}; lower parallelism.dp, or raise hardware.nodes or hardware.devices_per_node"
    )


def _check_positions(config: RunConfig) -> None:
    limit = config.model.max_positions
    if limit is not None and config.data.seq_len > limit:
        raise ConfigError(f"data.seq_len={config.data.seq_len} exceeds model.max_positions={limit} of model={config.model.name}")


def _check_targets(config: RunConfig, techniques: Techniques, shape: ModelShape | None) -> None:
    if techniques.adapter != "lora" or shape is None:
        return
    wrong = next((name for name in config.adapter.targets if name not in shape.matrices), None)
    if wrong or not config.adapter.targets:
        raise unknown("adapter.targets", wrong or "", shape.matrices)


def _contents(config: RunConfig) -> dict[str, str]:
    """Digests of the checkpoint and of the data that it names; raises ConfigError for what is wrong in them."""
    for key, place in (("data.path", config.data.path), ("data.tokenizer", config.data.tokenizer)):
        files.check_place(key, place)
    checkpoint, paths = local_checkpoint(config.model), _data_files(config.data)
    found = ({"checkpoint": checkpoint.digest} if checkpoint else {}) | ({"data": files.digest(paths)} if paths else {})
    if config.data.name == "instructions" and config.data.files:
        instructions.check(paths)
    return found


def _data_files(data: DataConfig) -> list[Path]:
    if data.name == "instructions" and data.files:
        return instructions.files_of(data.files)
    if data.name in ("hf", "instructions"):
        return files.below(Path(data.path)) if data.path else []
    return files.matching(data.files) if data.name == "text" else []


def _check_tracker(uri: str | None) -> None:
    if uri is None:
        return
    check_uri(uri, "tracking.uri")
    if urlsplit(uri).password:
        raise ConfigError(
            "tracking.uri holds a password, which the plan would keep: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead"
        )
