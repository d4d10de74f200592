"""The step from a configuration to the plan of its run: the task decides, and checks that all runs share follow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from llmexp.errors import ConfigError
from llmexp.record.calibration import AUTO, NONE, read_limits
from llmexp.record.plan import RunPlan
from llmexp.record.skip import Skip, SkipCode
from llmexp.record.tracking_uri import check_uri
from llmexp.registry import get_engine, get_task, get_tracker
from llmexp.schema import HfModel, RunConfig
from llmexp.schema.model import RUN
from llmexp.version import __version__


def resolve(config: RunConfig, overrides: Sequence[str] = ()) -> RunPlan:
    """Plan one run; raise ConfigError for what cannot be planned. A run that is skipped has a plan too.

    `overrides` are the command line's words for this run.
    """
    task, engine = get_task(config.task.name), get_engine(config.task.name, config.engine.name)
    if config.engine.launcher not in engine.launchers:
        choices = ", ".join(engine.launchers)
        raise ConfigError(
            f"engine.launcher={config.engine.launcher} does not start engine={engine.name}: choices are {choices}"
        )
    _check_tracker(config.tracking.uri)
    for tracker in config.tracking.also:
        get_tracker(tracker)
    _check_limited(config, trains=getattr(engine, "builds_model", False))
    if config.hardware.calibration not in (AUTO, NONE):
        read_limits(Path(config.hardware.calibration))
    _check_order(config)
    _check_source(config)
    plan: RunPlan = task.plan(config)
    _check_fits_nodes(plan)
    said = {"overrides": list(overrides), "written_by": __version__}
    return plan.model_copy(update=said | {"skip": _too_many_ranks(plan) or _fork_limit(config) or plan.skip})


def _check_limited(config: RunConfig, *, trains: bool) -> None:
    if config.hardware.memory_limit_bytes and not trains:
        raise ConfigError(
            f"hardware.memory_limit_bytes limits llmexp's own ranks that train, which task={config.task.name} with "
            f"engine={config.engine.name} does not start; leave it out"
        )


def _check_order(config: RunConfig) -> None:
    if config.is_interleaved and config.hardware.nodes > 1:
        raise ConfigError(
            f"measure.order=interleaved: hardware.nodes={config.hardware.nodes}, and a run on several machines holds "
            f"them for all its repeats: set hardware.nodes=1 or measure.order=run_by_run"
        )


def _check_source(config: RunConfig) -> None:
    """Raise ConfigError for model=@NAME outside a sweep, in which no run could have that name."""
    model = getattr(config, "model", None)
    if isinstance(model, HfModel) and model.path.startswith(RUN) and not model.made:
        raise ConfigError(
            f"model={model.path} names another run of the same sweep, and this is one run: name the folder of the "
            "model that it saved"
        )


def _check_fits_nodes(plan: RunPlan) -> None:
    nodes = plan.config.hardware.nodes
    if plan.processes % nodes:
        raise ConfigError(
            f"{plan.arithmetic} cannot be shared out evenly over hardware.nodes={nodes}; change one of the two"
        )


def _too_many_ranks(plan: RunPlan) -> Skip | None:
    hardware = plan.config.hardware
    if hardware.device == "cpu" or plan.devices <= hardware.devices_per_node * hardware.nodes:
        return None
    reason = (
        f"{plan.arithmetic}, but hardware={hardware.name} has {hardware.devices_per_node} devices a node, "
        f"and hardware.nodes={hardware.nodes}; take fewer, or raise hardware.nodes or hardware.devices_per_node"
    )
    return Skip(code=SkipCode.RANKS, reason=reason)


def _check_tracker(uri: str | None) -> None:
    if uri is None:
        return
    check_uri(uri, "tracking.uri")
    if urlsplit(uri).password:
        raise ConfigError(
            "tracking.uri holds a password, which the plan would keep: set MLFLOW_TRACKING_USERNAME "
            "and MLFLOW_TRACKING_PASSWORD instead"
        )


def _fork_limit(config: RunConfig) -> Skip | None:
    """Say why ranks cannot be forked from a process that has imported for them."""
    why = {
        "a process that has imported torch and DeepSpeed cannot be forked for GPUs": config.hardware.device != "cpu",
        "it forks ranks on one node": config.hardware.nodes > 1,
        f"ranks of runtime={config.runtime.name} are not llmexp's own": not config.runtime.plain,
    }
    reason = (
        next((reason for reason, holds in why.items() if holds), None) if config.engine.launcher == "fork" else None
    )
    words = f"engine.launcher=fork: {reason}; set engine.launcher=spawn"
    return Skip(code=SkipCode.LAUNCHER, reason=words) if reason else None
