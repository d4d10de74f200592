import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from llmexp.engines.resolve import resolve
from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder, write_atomically
from llmexp.record.result import Metric, RunResult, RunStatus, StepSample
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
    "measure": "quick",
    "tracking": "mlflow",
}
STEPS, WARMUP_STEPS, PROFILED_STEPS, STEP_S = 25, 5, 2, 0.1
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


@pytest.fixture
def make_run(outputs: Path) -> MakeRun:
    """Write a whole run's folder with fake values for 2 ranks; without its result and its event where status is None."""

    def make(method: str = "Naive", status: str | None = "success", repeats: int = 1, **changes: Any) -> RunFolder:
        plan = _plan(method, changes)
        folder = RunFolder(outputs / plan.config.sweep.name / plan.folder_name)
        folder.write(folder.plan_path, plan)
        started_s = time.time() - 60
        for index in range(repeats):
            _write_repeat(folder.repeat(index), plan)
        write_atomically(folder.figures / "loss.png", "")
        (folder.figures / "loss.png").write_bytes(PIXEL)
        folder.system_path.write_text("".join(f'{{"at_s": {started_s + 5 * n}, "cpu_utilization_percentage": {50 + n}}}\n' for n in range(3)))
        if status:
            folder.event("running")
            folder.write(folder.result_path, _result(plan, RunStatus(status), repeats, started_s))
        return folder

    return make


def _plan(method: str, changes: dict[str, Any]) -> RunPlan:
    config: dict[str, Any] = {group: OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml")) for group, name in GROUPS.items()}
    config |= {"method": method, "batch": {"micro": 2, "accumulation": 1}, "seed": 0, "force": False, "rerun": "none"}
    config |= {"sweep": {"name": "main", "outputs": "outputs"}}
    for key, value in changes.items():
        section, _, field = key.partition("__")
        config[section] = config[section] | {field: value} if field else value
    return resolve(validate(config), [f"method={method}", *(f"{key.replace('__', '.')}={value}" for key, value in changes.items())])


def _write_repeat(repeat: Path, plan: RunPlan) -> None:
    (repeat / "trace").mkdir(parents=True)
    (repeat / "trace" / "trace.0.json.gz").write_bytes(b"\x1f\x8b fake")
    for rank in range(plan.dims.world_size):
        (repeat / f"log.{rank}.txt").write_text("step 0\n")
        lines = [_sample(step, rank).model_dump_json() + "\n" for step in range(STEPS + PROFILED_STEPS)]
        (repeat / f"samples.{rank}.jsonl").write_text("".join(lines))


def _sample(step: int, rank: int) -> StepSample:
    """Rank 1 takes twice as long as rank 0."""
    start_s = STEP_S * step
    return StepSample(
        step=step,
        warmup=not WARMUP_STEPS <= step < STEPS,
        t_start_s=start_s,
        t_end_s=start_s + STEP_S * (rank + 1) / 2,
        positions=700,
        real_tokens=700,
        loss=6.0 - 0.1 * step,
        phases_s={"forward": 0.01, "backward": 0.02},
        memory_bytes=1000 + step,
    )


def _result(plan: RunPlan, status: RunStatus, repeats: int, started_s: float) -> RunResult:
    config = plan.config
    measured = status is RunStatus.SUCCESS
    return RunResult(
        id=plan.id,
        stack="0123456789ab",
        status=status,
        reason="" if measured else f"made to end as {status}",
        task=config.task.name,
        engine=config.engine.name,
        model=config.model.name,
        method=plan.method,
        hardware=config.hardware.name,
        sweep=config.sweep.name,
        world_size=plan.dims.world_size,
        batch=plan.batch,
        seq_len=config.data.seq_len,
        metrics={"tokens_per_s": Metric(mean=7000.0, std_between_repeats=12.5, n=repeats), "mfu": None} if measured else {},
        repeats=repeats,
        what_ran={"attention_kernel": "aten::_softmax"} if measured else {},
        environment={"python": "3.11.0", "git": {"llmexp": {"commit": "c0ffee", "dirty": False, "remote": None}}},
        command=plan.rerun_command,
        started_at=_iso(started_s),
        ended_at=_iso(started_s + 50),
    )


def _iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")
