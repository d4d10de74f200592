"""Make a run's result from the files that the ranks left in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llmexp.analysis.contention import Machine, read_machine, windows_unix_s
from llmexp.analysis.stability import AnyRepeat
from llmexp.errors import ConfigError, RecordError
from llmexp.launch.attempt import check_still_mine
from llmexp.launch.ending import Ending
from llmexp.launch.stack import stack_digest
from llmexp.launch.trials import trials_of
from llmexp.launch.turns import Turns, force_repeat_to_disk, is_finished, summary
from llmexp.record.calibration import calibration_for
from llmexp.record.concurrent_runs import concurrent_runs
from llmexp.record.counted import CountedPeaks
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.redact import redact, redact_all
from llmexp.record.result import Metric, ResultPoint, RunResult, RunStatus, Stability
from llmexp.record.samples import GpuWindow, RankFailure
from llmexp.record.writing import now
from llmexp.registry import get_task
from llmexp.version import __version__

# A full disk, a calibration that is gone by now, and what a damaged trace may still lead to.
_OF_A_TRACE = (OSError, ConfigError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError)


@dataclass(frozen=True)
class Answer:
    """The findings of a run."""

    finished: Sequence[Path] = ()
    """The folders of the repeats that ended well."""
    metrics: dict[str, Metric | None] = field(default_factory=dict)
    points: list[ResultPoint] = field(default_factory=list)
    stability: Stability | None = None


def conclude(
    plan: RunPlan, folder: RunFolder, ending: Ending, environment: Mapping[str, Any], turns: Turns | None = None
) -> RunResult:
    """Write the result, then its event; whatever the ending, all that is known is kept.

    Raises RunLostError, and writes nothing, where another driver has taken the run and owns the folder.
    """
    check_still_mine(folder, asking=True)
    finished = [repeat for repeat in folder.repeats() if is_finished(repeat, plan.processes)]
    answer = Answer(finished)
    if ending.status is RunStatus.SUCCESS:
        try:
            answer, remark = _answer(plan, folder, finished, environment)
            ending = replace(ending, reason=remark)
        except RecordError as error:
            ending = replace(ending, status=RunStatus.FAILED, reason=str(error))
    if ending.status is not RunStatus.SUCCESS:
        answer = replace(answer, points=_points_until_now(plan, folder))
    _break_down(plan, folder, finished, environment)
    result = _result(plan, folder, ending, answer, environment)
    if turns:
        result = result.model_copy(update={"order": turns.order, "turns": turns.begun})
    for repeat in finished:
        force_repeat_to_disk(repeat)
    check_still_mine(folder, asking=True)  # reading the files may have taken long
    folder.write(folder.result_path, result)
    folder.event(result.status.value, reason=result.reason)
    return result


def _points_until_now(plan: RunPlan, folder: RunFolder) -> list[ResultPoint]:
    """Return the points that a run had measured when it ended otherwise than by success."""
    repeats = folder.repeats()
    return get_task(plan.config.task.name).points_until_now(plan, repeats[-1]) if repeats else []


def _break_down(plan: RunPlan, folder: RunFolder, finished: Sequence[Path], environment: Mapping[str, Any]) -> None:
    """Say where the time of the profiled steps went, where some were; nothing in a trace may cost the result too."""
    if any(folder.path.glob("repeat.*/trace/*")):
        from llmexp.traces.run import write_breakdown

        hardware, outputs = plan.config.hardware, folder.path.parents[1]
        with suppress(*_OF_A_TRACE):
            seen = _environment(finished, environment)
            limits = calibration_for(hardware.calibration, outputs, plan.processes, seen)
            write_breakdown(folder, plan.processes, CountedPeaks.of(hardware), limits)


def precise_enough(plan: RunPlan, repeats: Sequence[Path]) -> bool:
    """Say whether the finished repeats are as precise as the protocol requires, so that no more are needed."""
    task = get_task(plan.config.task.name)
    return task.may_end_early(plan) and task.is_known_enough(plan, [task.read(repeat, plan) for repeat in repeats])


def _answer(
    plan: RunPlan, folder: RunFolder, finished: list[Path], environment: Mapping[str, Any]
) -> tuple[Answer, str]:
    """Return what the finished repeats show, and a remark on it; raises RecordError."""
    if not finished:
        raise RecordError("there is no finished repeat to measure")
    task = get_task(plan.config.task.name)
    repeats = [task.read(repeat, plan) for repeat in finished]
    metrics, points = task.measure(plan, repeats), task.points(plan, repeats)
    cpus = [environment["cpu"], *environment.get("other_nodes_cpu", ())]
    machines = [
        replace(_machine(plan, folder, finished, node, cpu), counted=_counted(plan, repeats, node))
        for node, cpu in enumerate(cpus)
    ]
    judged = task.judge(plan, repeats, machines)
    neighbors = concurrent_runs(folder, windows_unix_s(repeat / "samples.0.jsonl" for repeat in finished))
    return Answer(
        finished, metrics, points, judged and judged.model_copy(update={"concurrent_runs": neighbors})
    ), task.remark(repeats)


def _machine(plan: RunPlan, folder: RunFolder, finished: list[Path], node: int, cpu: Mapping[str, Any]) -> Machine:
    """Read how busy one machine was; on cpu ranks use all usable cores, beside GPUs each rank needs one core."""
    usable = cpu["usable_cores"] or cpu["logical_cores"]
    wanted = usable if plan.config.hardware.device == "cpu" else min(usable, plan.ranks_per_node)
    own = [repeat / f"samples.{node * plan.ranks_per_node}.jsonl" for repeat in finished]
    machine = read_machine(folder.system_of(node), own, usable, wanted)
    return replace(machine, name=f"node {node}" if node else "", on_gpus=plan.config.hardware.device == "cuda")


def _counted(plan: RunPlan, repeats: Sequence[AnyRepeat], node: int) -> list[GpuWindow | None]:
    """Return what NVML counted for the ranks of one machine."""
    first = node * plan.ranks_per_node
    return [rank.gpu for repeat in repeats for rank in repeat.ranks[first : first + plan.ranks_per_node]]


def _result(
    plan: RunPlan, folder: RunFolder, ending: Ending, answer: Answer, environment: Mapping[str, Any]
) -> RunResult:
    config, task = plan.config, get_task(plan.config.task.name)
    first = summary(answer.finished[0] / "rank.0.json") if answer.finished else None
    return RunResult(
        id=plan.id,
        stack=stack_digest(plan),
        status=ending.status,
        reason=redact(ending.reason),
        skip=ending.skip,
        evidence="emulated" if plan.emulates else "measured",
        failure=_without_secrets(ending.failure),
        task=config.task.name,
        engine=config.engine.name,
        hardware=config.hardware.name,
        sweep=config.sweep.name,
        processes=plan.processes,
        devices=plan.devices,
        metrics=answer.metrics,
        points=[*task.points_of_trials(trials_of(folder)), *answer.points],
        stability=answer.stability,
        repeats=len(answer.finished),
        started_from=plan.started_from,
        what_ran=redact_all(first.what_ran) if first else {},
        environment=redact_all(_environment(answer.finished, environment)),
        command=plan.rerun_command,
        started_at=_started_at(folder),
        ended_at=now(),
        written_by=__version__,
        **plan.in_result,
    )


def _environment(finished: Sequence[Path], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the driver and, where it finished a repeat, rank 0 say of the environment."""
    first = summary(finished[0] / "rank.0.json") if finished else None
    return dict(environment) | (first.environment if first else {})


def _without_secrets(failure: RankFailure | None) -> RankFailure | None:
    """Redact the failure: a library that was refused access quotes the token in its message."""
    return failure and failure.model_copy(
        update={"message": redact(failure.message), "traceback": redact(failure.traceback)}
    )


def _started_at(folder: RunFolder) -> str:
    return next((str(event["at"]) for event in folder.events()), "")
