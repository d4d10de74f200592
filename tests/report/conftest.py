import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from llmexp.engines.resolve import resolve
from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric, RunResult, StepSample
from llmexp.schema import validate

MakeRun = Callable[..., RunFolder]
CONF = Path(__file__).parents[2] / "conf"
GROUPS = {
    "task": "pretrain",
    "model": "tiny",
    "hardware": "cpu",
    "engine": "deepspeed",
    "parallelism": "data",
    "optimizer": "adamw",
    "precision": "bf16_mixed",
    "data": "synthetic",
    "measure": "smoke",
    "tracking": "none",
}
GPU = {"device": "cuda", "devices_per_node": 8}


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a run's folder with a real plan, and a result with `metrics` (numbers or Metric) where `status` is given."""

    def make(
        method: str = "Naive", status: str | None = "success", metrics: dict[str, Any] | None = None, reason: str = "", **changes: Any
    ) -> RunFolder:
        plan = _plan(method, changes)
        folder = RunFolder(tmp_path / plan.config.sweep.name / plan.folder_name)
        folder.write(folder.plan_path, plan)
        if status:
            folder.write(folder.result_path, _result(plan, status, reason, metrics or {}))
        return folder

    return make


@pytest.fixture
def write_samples() -> Callable[..., None]:
    """Write one rank's samples: (duration in s, loss) a step, the first `warmup` of them to warm up."""

    def write(folder: RunFolder, repeat: int, rank: int, steps: list[tuple[float, float]], warmup: int = 2) -> None:
        path = folder.repeat(repeat) / f"samples.{rank}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines, start_s = [], 0.0
        for number, (duration_s, loss) in enumerate(steps):
            times = {"t_start_s": start_s, "t_end_s": start_s + duration_s}
            sample = StepSample(step=number, warmup=number < warmup, positions=350, real_tokens=350, loss=loss, **times)
            lines.append(sample.model_dump_json() + "\n")
            start_s += duration_s
        path.write_text("".join(lines))

    return write


def _plan(method: str, changes: dict[str, Any]) -> RunPlan:
    config: dict[str, Any] = {group: OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml")) for group, name in GROUPS.items()}
    config |= {"method": method, "batch": {"micro": 1, "accumulation": 1}, "seed": 0, "force": False, "rerun": "none"}
    config |= {"sweep": {"name": "main", "outputs": "outputs"}}
    for key, value in changes.items():
        section, _, field = key.partition("__")
        config[section] = config[section] | {field: value} if field else value
    if config["hardware"]["name"] != "cpu":
        config["hardware"] |= GPU
    words = [f"method={method}", *(f"{key.replace('__', '.')}={value}" for key, value in changes.items())]
    plan = resolve(validate(config), words)
    assert shlex.split(plan.rerun_command)[-len(words) :] == words
    return plan


def _result(plan: RunPlan, status: str, reason: str, metrics: dict[str, Any]) -> RunResult:
    config = plan.config
    return RunResult(
        id=plan.id,
        stack="0123456789ab",
        status=status,
        reason=reason,
        task=config.task.name,
        engine=config.engine.name,
        model=config.model.name,
        method=plan.method,
        hardware=config.hardware.name,
        sweep=config.sweep.name,
        world_size=plan.dims.world_size,
        batch=plan.batch,
        seq_len=config.data.seq_len,
        metrics={name: value if isinstance(value, Metric) else Metric(mean=value) for name, value in metrics.items()},
        repeats=1,
        command=plan.rerun_command,
    )
