"""TrainingConfig to TrainingPlan: everything is decided before a run starts, without torch and without a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmexp.errors import ConfigError, unknown
from llmexp.inputs import files, instructions
from llmexp.inputs.architecture.given import check_given
from llmexp.inputs.checkpoint import local_checkpoint
from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.method import Method, Techniques
from llmexp.record.run_id import identity
from llmexp.record.skip import Skip, SkipCode
from llmexp.registry import get_engine
from llmexp.schema import SizedModel
from llmexp.schema.model import RUN
from llmexp.training.config import DataConfig, InstructionsData, TextData, TrainingConfig
from llmexp.training.engine import TrainingEngine
from llmexp.training.knobs import (
    chunked_loss_limit,
    degrees_limit,
    flash_limit,
    fused_accumulation_limit,
    fused_projections_limit,
    liger_limit,
    schedule_limit,
    update_limit,
    window_limit,
)
from llmexp.training.memory_limits import (
    activation_offload_limit,
    keep_limit,
    optimizer_folder_limit,
    recompute_layers_limit,
)
from llmexp.training.plan.artifacts import check_keeping
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.largest_batch import searchable
from llmexp.training.plan.memory import Storage
from llmexp.training.plan.model_counts import CountedRun, ModelCounts, counts_of_other, counts_of_shape, uncounted
from llmexp.training.plan.moments import moment_bytes
from llmexp.training.plan.rate_schedule import check_schedule
from llmexp.training.plan.share import shares_of
from llmexp.training.plan.tokens import with_steps_of_budget
from llmexp.training.plan.training_plan import AtomChange, TrainingPlan
from llmexp.training.precision_limits import (
    dtype_limit,
    linears_limit,
    loss_scale_limit,
    qat_limit,
    tf32_limit,
)
from llmexp.training.predict import predict


def plan_training(config: TrainingConfig) -> TrainingPlan:
    """Plan one run, which may be a skip; raises ConfigError for a configuration that cannot run."""
    check_given(config.model)
    method = Method.parse(config.method, config.task.name)
    techniques, engine = method.techniques, training_engine(config)
    dims = ParallelDims.of(config, engine.schedules, engine.cp_chunks)
    config = with_steps_of_budget(searchable(config, builds_model=engine.builds_model), dims)
    shape = _shape(config, method)
    _check_positions(config)
    _check_targets(config, techniques, shape)
    check_schedule(config)
    check_keeping(config, techniques, dims, engine_keeps=engine.keeps_weights)
    run = _counted(config, engine, techniques, dims)
    native = _merged(engine.native_config(config, techniques, dims), config.engine.options)
    contents = _contents(config)
    made = TrainingPlan(
        id=identity(config, native, {"method": str(method)} | contents),
        contents=contents,
        processes=dims.world_size,
        devices=dims.world_size,
        method=str(method),
        atoms=[AtomChange(code=atom.code, help=atom.help, sets=method.changes_of(atom)) for atom in method.atoms],
        dims=dims,
        batch=dims.batch(config.batch.samples, config.batch.accumulation),
        settled=not config.batch.is_searched,
        optimizer_state_bytes_per_parameter=run.moments,
        engine_config=native,
        engine_compiles=engine.compiles(config),
        command=engine.command(config, dims),
        skip=_skip(config, engine, techniques, dims),
        config=config,
        **_counts(shape, run, method).in_plan,
    )
    return made if made.skip else made.model_copy(update={"predicted": predict(made)})


def _counted(config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims) -> CountedRun:
    return CountedRun(
        config=config,
        techniques=techniques,
        dims=dims,
        storage=_storage(config, engine, techniques),
        moments=moment_bytes(config, techniques),
        builds_model=engine.builds_model,
        # A layer in fp8 keeps what backward needs after it has multiplied, so that the last one multiplies again too.
        # Of cut layers, compiled code runs again whole.
        recomputes_whole=engine.recomputes_whole(techniques)
        or config.precision.linears is not None
        or (techniques.compilation and dims.tp > 1),
    )


def training_engine(config: TrainingConfig) -> TrainingEngine:
    """Return the engine of a training run, or raise ConfigError that lists the known names."""
    engine = get_engine(config.task.name, config.engine.name)
    assert isinstance(engine, TrainingEngine)
    return engine


def _skip(config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims) -> Skip | None:
    """Return the first reason for a skip; limits of the engine come before those of settings beside its atoms."""
    before = (schedule_limit, dtype_limit, degrees_limit)
    lacks = next(
        filter(None, (limit(config, engine, techniques, dims) for limit in before)), None
    ) or engine.unsupported(config, techniques, dims)
    knobs = (
        activation_offload_limit,
        keep_limit,
        recompute_layers_limit,
        optimizer_folder_limit,
        flash_limit,
        window_limit,
        liger_limit,
        chunked_loss_limit,
        fused_projections_limit,
        fused_accumulation_limit,
        tf32_limit,
        loss_scale_limit,
        linears_limit,
        qat_limit,
        update_limit,
    )
    limits = (limit(config, engine, techniques, dims) for limit in knobs)
    reason = lacks or next(filter(None, limits), None)
    return Skip(code=SkipCode.UNSUPPORTED, reason=reason) if reason else None


def _merged(native: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    nested = {key: _merged(native.get(key, {}), value) for key, value in options.items() if isinstance(value, dict)}
    return native | options | nested


def _storage(config: TrainingConfig, engine: TrainingEngine, techniques: Techniques) -> Storage:
    made = engine.storage(config, techniques)
    for share in shares_of(techniques):
        made = share.storage(made, config)
    return made


def _shape(config: TrainingConfig, method: Method) -> ModelShape | None:
    """Return the model's shape, or None where an atom's hook changes it in a way that only the built model shows."""
    return None if _hidden(method) else shape_of(config.model)


def _hidden(method: Method) -> str:
    return next((atom.code for atom in method.atoms if atom.model_hook and not atom.share), "")


def _counts(shape: ModelShape | None, run: CountedRun, method: Method) -> ModelCounts:
    if shape:
        return counts_of_shape(shape, run)
    code = _hidden(method)
    return uncounted(f"the hook of {code} changes the model") if code else counts_of_other(run)


def _check_positions(config: TrainingConfig) -> None:
    model, seq_len = config.model, config.data.seq_len
    if isinstance(model, SizedModel) and seq_len > model.max_positions:
        raise ConfigError(
            f"data.seq_len={seq_len} exceeds model.max_positions={model.max_positions} of model={model.name}"
        )


def _check_targets(config: TrainingConfig, techniques: Techniques, shape: ModelShape | None) -> None:
    if techniques.adapter != "lora" or shape is None:
        return
    wrong = next((name for name in config.adapter.targets if name not in shape.matrices), None)
    if wrong or not config.adapter.targets:
        raise unknown("adapter.targets", wrong or "", shape.matrices)


def _contents(config: TrainingConfig) -> dict[str, str]:
    """Return the digests of the checkpoint and of the data files; raises ConfigError for errors in them."""
    for key, place in config.data.places.items():
        _check_place(config, key, place)
    checkpoint, paths = local_checkpoint(config.model), _data_files(config.data)
    found = ({"checkpoint": checkpoint.digest} if checkpoint else {}) | ({"data": files.digest(paths)} if paths else {})
    if isinstance(config.data, InstructionsData) and config.data.files:
        instructions.check(paths)
    return found


def _check_place(config: TrainingConfig, key: str, place: str) -> None:
    model = config.starts_from
    if model is None or place != model.path:
        return files.check_place(key, place)
    assert model.made
    if not model.made.tokenizer:
        raise ConfigError(
            f"model={RUN}{model.name} will have no tokenizer beside it: set {key}=<folder or hub name, or bytes>"
        )
    return None


def _data_files(data: DataConfig) -> list[Path]:
    if isinstance(data, InstructionsData) and data.files:
        return instructions.files_of(data.files)
    if isinstance(data, TextData):
        return files.matching(data.files)
    return files.below(Path(data.dataset)) if data.dataset else []
