"""The driver's side of tracing: it refuses what cannot be traced, and starts the process that traces the rest."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from llmexp.errors import ConfigError
from llmexp.launch.display import say
from llmexp.launch.runtime import Runtime
from llmexp.record.installed import installs
from llmexp.record.result import to_json
from llmexp.registry import get_engine
from llmexp.schema import HfModel
from llmexp.training.engine import TrainingEngine
from llmexp.training.plan.traced_memory import TracedMemory
from llmexp.training.plan.training_plan import TrainingPlan

WORKER = ("-m", "llmexp.launchers.tracing.worker")
LOOK_S = 1.0
# No device that is here takes part.
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}


def trace_memory(plan: TrainingPlan) -> TracedMemory:
    """Trace a rank of the plan in a process of its own, and print how far it is.

    Raises ConfigError, of one line, for what cannot be traced.
    """
    if reason := _untraceable(plan):
        raise ConfigError(f"--trace-memory: {reason}")
    traced = _as_traced(plan)
    runtime = Runtime(traced)
    if missing := runtime.installed.missing:
        raise ConfigError(f"--trace-memory: needs {', '.join(missing)}: {installs('train')}")
    say(f"tracing {plan.name} ...")
    with tempfile.TemporaryDirectory(prefix="llmexp-trace-") as place:
        folder = Path(place) / "repeat.0"
        folder.mkdir()
        (folder / "plan.json").write_text(to_json(traced))
        return _traced(runtime, folder)


def _traced(runtime: Runtime, folder: Path) -> TracedMemory:
    words, log, said = [runtime.python, *WORKER, str(folder)], folder / "log.txt", ""
    with runtime.start(words, log, {**os.environ, **_HIDDEN, "OMP_NUM_THREADS": "1"}) as tracer:
        while not tracer.ends_within(LOOK_S):
            if (now := _line(folder / "progress.txt")) != said:
                said = now
                say(f"  {said}")
        tracer.stop()
    if (found := folder / "traced.json").exists():
        return TracedMemory.model_validate_json(found.read_text())
    why = _line(folder / "failure.txt") or _line(log) or "the process that traces was killed"
    raise ConfigError(f"--trace-memory: this cannot be traced: {why}")


def _line(path: Path) -> str:
    """Return the file's last line; empty where there is no file."""
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    return next((line for line in reversed(lines) if line), "")


def _as_traced(plan: TrainingPlan) -> TrainingPlan:
    """Return the plan with random weights, and with a kernel for F that is here: every one keeps the same tensors."""
    config = plan.config
    model = config.model.model_copy(update={"weights": "random"}) if isinstance(config.model, HfModel) else config.model
    kernels = config.kernels.model_copy(update={"flash": "auto"})
    engine = config.engine.model_copy(update={"launcher": "spawn"})
    changed = config.model_copy(update={"model": model, "kernels": kernels, "engine": engine})
    return plan.model_copy(update={"config": changed})


def _untraceable(plan: TrainingPlan) -> str | None:
    """Say why a plan cannot be traced; None where it can be tried."""
    config, techniques, dims = plan.config, plan.techniques, plan.dims
    engine = get_engine(config.task.name, config.engine.name)
    reasons = {
        str(plan.skip): plan.skip is not None,
        f"engine={config.engine.name} has no ranks without a device: set engine=torch or engine=deepspeed": (
            not _traces(engine)
        ),
        "batch.micro=max is searched for: set a number": not plan.settled,
        "degrees other than dp wait for what other ranks send: set them to 1": dims.world_size > dims.dp or dims.ep > 1,
        "copies of shards wait for each other's gradients: leave parallelism.shard out": dims.shard is not None,
        f"optimizer={config.optimizer.name} is DeepSpeed's own, which is compiled: set optimizer=adamw": (
            "optimizer" in plan.engine_config
        ),
        "Q's and QL's weights are traced with engine=torch only": (
            techniques.quantization is not None and config.engine.name != "torch"
        ),
        "C compiles code, and what compiled code keeps shows only where it runs: leave C out": techniques.compilation,
        "O and memory.activation_offload move memory to the host, and a traced rank has one memory: leave them out": (
            techniques.offload_optimizer or techniques.offload_parameters or config.memory.activation_offload
        ),
        "kernels.liger=true needs a GPU: set kernels.liger=false": config.kernels.liger,
        f"data={config.data.name} isolates records, whose lengths are not known: set data=synthetic": (
            config.data.isolates
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _traces(engine: object) -> bool:
    return isinstance(engine, TrainingEngine) and engine.traces_memory
