"""From what the ranks left in the run's folder to its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from llmexp import __version__
from llmexp.analysis.contention import Machine, read_machine, windows_unix_s
from llmexp.analysis.convergence import divergence
from llmexp.analysis.metrics import measure, tokens_per_s
from llmexp.analysis.quantity import Facts
from llmexp.analysis.stability import is_known_to, judge
from llmexp.analysis.window import Repeat, read_repeat
from llmexp.errors import RecordError
from llmexp.launch.attempt import check_still_mine
from llmexp.launch.ending import Ending
from llmexp.launch.stack import stack_digest
from llmexp.plan.run_plan import RunPlan
from llmexp.record.beside import beside
from llmexp.record.folder import RunFolder, force_to_disk, now
from llmexp.record.redact import redact, redact_all
from llmexp.record.result import GpuWindow, Metric, RankFailure, RankSummary, RunResult, RunStatus, Stability

# Two repeats that happen to agree would end a run by chance.
MIN_REPEATS = 3


def conclude(plan: RunPlan, folder: RunFolder, ending: Ending, environment: Mapping[str, Any]) -> RunResult:
    """Write the result, then the event that says so; whatever the ending, what is known is kept.

    Raises RunLostError, and writes nothing, where another driver has taken the run from this one: the folder is the other's.
    """
    check_still_mine(folder, asking=True)
    finished = [repeat for repeat in folder.repeats() if _finished(repeat, plan.dims.world_size)]
    metrics: dict[str, Metric | None] = {}
    stability = None
    if ending.status is RunStatus.SUCCESS:
        try:
            metrics = measure(finished, facts(plan))
            stability = _stability(plan, folder, finished, environment)
            ending = replace(ending, reason=divergence([read_repeat(repeat, plan.dims.world_size) for repeat in finished]))
        except RecordError as error:
            ending = replace(ending, status=RunStatus.FAILED, reason=str(error))
    known = {"stability": stability, "started_at": _started_at(folder)}
    result = _result(plan, ending, metrics, finished, environment).model_copy(update=known)
    force_to_disk(path for repeat in finished for pattern in ("samples.*", "rank.*") for path in repeat.glob(pattern))
    check_still_mine(folder, asking=True)  # what was read may have been much
    folder.write(folder.result_path, result)
    folder.event(result.status.value, reason=result.reason)
    return result


def precise_enough(plan: RunPlan, repeats: Sequence[Path]) -> bool:
    """Whether the finished repeats know tokens_per_s as well as measure.stop_at_interval_share asks, so that no more are needed."""
    wanted = plan.config.measure.stop_at_interval_share
    if wanted is None or len(repeats) < MIN_REPEATS:
        return False
    speeds = [tokens_per_s(read_repeat(repeat, plan.dims.world_size), facts(plan)) for repeat in repeats]
    return is_known_to(speeds, wanted, looks=max(1, plan.config.measure.repeats - MIN_REPEATS))


def facts(plan: RunPlan) -> Facts:
    """What metrics need of the plan; the peak is that of the dtype which the matrix products run in, the parameters'."""
    hardware = plan.config.hardware
    return Facts(
        world_size=plan.dims.world_size,
        dp=plan.dims.dp,
        flops=plan.flops,
        peak_flops_per_s=hardware.peak_flops_per_s.get(plan.config.precision.parameters),
        price_per_device_hour_usd=hardware.price_per_device_hour_usd,
        token_budget=plan.config.measure.tokens,
    )


def _stability(plan: RunPlan, folder: RunFolder, finished: list[Path], environment: Mapping[str, Any]) -> Stability:
    repeats = [read_repeat(repeat, plan.dims.world_size) for repeat in finished]
    cpus = [environment["cpu"], *environment.get("other_nodes_cpu", ())]
    machines = [replace(_machine(plan, folder, finished, node, cpu), counted=_counted(plan, repeats, node)) for node, cpu in enumerate(cpus)]
    found = judge(repeats, [tokens_per_s(repeat, facts(plan)) for repeat in repeats], machines)
    return found.model_copy(update={"beside": beside(folder, windows_unix_s(repeat / "samples.0.jsonl" for repeat in finished))})


def _machine(plan: RunPlan, folder: RunFolder, finished: list[Path], node: int, cpu: Mapping[str, Any]) -> Machine:
    """Ranks on cpu share out all cores that they may use; beside GPUs each needs one to feed its device."""
    usable = cpu["usable_cores"] or cpu["logical_cores"]
    wanted = usable if plan.config.hardware.device == "cpu" else min(usable, plan.ranks_per_node)
    own = [repeat / f"samples.{node * plan.ranks_per_node}.jsonl" for repeat in finished]
    machine = read_machine(folder.system_of(node), own, cpu["logical_cores"], wanted)
    return replace(machine, name=f"node {node}" if node else "", on_gpus=plan.config.hardware.device == "cuda")


def _counted(plan: RunPlan, repeats: Sequence[Repeat], node: int) -> list[GpuWindow | None]:
    """What NVML counted for the ranks of one machine."""
    first = node * plan.ranks_per_node
    return [rank.gpu for repeat in repeats for rank in repeat.ranks[first : first + plan.ranks_per_node]]


def _result(plan: RunPlan, ending: Ending, metrics: dict[str, Metric | None], finished: list[Path], environment: Mapping[str, Any]) -> RunResult:
    config = plan.config
    first = _summary(finished[0] / "rank.0.json") if finished else None
    return RunResult(
        id=plan.id,
        stack=stack_digest(plan),
        status=ending.status,
        reason=redact(ending.reason),
        failure=_without_secrets(ending.failure),
        task=config.task.name,
        engine=config.engine.name,
        model=config.model.name,
        method=plan.method,
        hardware=config.hardware.name,
        sweep=config.sweep.name,
        world_size=plan.dims.world_size,
        batch=plan.batch,
        seq_len=config.data.seq_len,
        metrics=metrics,
        repeats=len(finished),
        what_ran=redact_all(first.what_ran) if first else {},
        environment=redact_all(dict(environment) | (first.environment if first else {})),
        command=plan.rerun_command,
        ended_at=now(),
        written_by=__version__,
    )


def _without_secrets(failure: RankFailure | None) -> RankFailure | None:
    """A library that was refused says with which token."""
    return failure and failure.model_copy(update={"message": redact(failure.message), "traceback": redact(failure.traceback)})


def _started_at(folder: RunFolder) -> str:
    return next((str(event["at"]) for event in folder.events()), "")


def _finished(repeat: Path, world_size: int) -> bool:
    return all(_summary(repeat / f"rank.{rank}.json") for rank in range(world_size))


def _summary(path: Path) -> RankSummary | None:
    try:
        return RankSummary.model_validate_json(path.read_text())
    except (FileNotFoundError, ValidationError):
        return None
