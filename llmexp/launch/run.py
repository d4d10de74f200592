"""Carry out one run on this node, from its plan to its result: set aside, check, spawn, watch, classify, collect."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmexp.errors import LlmexpError
from llmexp.launch.attempt import check_still_mine, only_attempt, set_aside
from llmexp.launch.classify import Ended, classify
from llmexp.launch.collect import conclude, precise_enough
from llmexp.launch.cores import too_few_cores
from llmexp.launch.detect import detect
from llmexp.launch.display import display, say
from llmexp.launch.ending import SUCCESS, Ending, in_words
from llmexp.launch.interrupt import interrupted_by, signals_ignored, signals_interrupt
from llmexp.launch.no_steps_hint import no_steps_hint
from llmexp.launch.nodes.group import Group
from llmexp.launch.nodes.peers import PeerNodes, peers_of
from llmexp.launch.nodes.place import place_of
from llmexp.launch.preflight import preflight
from llmexp.launch.prepare import prepare
from llmexp.launch.progress import Progress
from llmexp.launch.runtime import Runtime
from llmexp.launch.source import with_source
from llmexp.launch.spawn import agent_log
from llmexp.launch.stack import stack_digest
from llmexp.launch.trials import add_trial, is_one_more_trial, settle, spent_trials
from llmexp.launch.turns import Order, Turns
from llmexp.launch.watch import Limits, watch
from llmexp.machine.memory import oom_kills
from llmexp.record.duration import duration
from llmexp.record.environment import capture
from llmexp.record.folder import RunFolder
from llmexp.record.identity import process_identity
from llmexp.record.plan import RunPlan
from llmexp.record.printed import Logs
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.system import SystemSampler
from llmexp.registry import get_engine
from llmexp.schema.run import PYTHON

SYSTEM_INTERVAL_S = 5.0
FETCH_LOG = "log.fetch.txt"
RunInTurns = Generator[None, None, RunResult]
UNEXPECTED = Ending(RunStatus.FAILED, "llmexp itself failed; see its own output")


def always() -> bool:
    """Return True, whatever the folder holds."""
    return True


def run_one(plan: RunPlan, folder: RunFolder, wanted: Callable[[], bool] = always) -> RunResult | None:
    """Run a plan and leave its result in the folder.

    `wanted` is asked once no other driver can change the folder; returns None where it says no.

    Raises KeyboardInterrupt, after writing the result, where the user or a signal ends the run. Raises RunHeldError
    where another driver holds the run, or has taken it because this machine stood still for long; then nothing more is
    written.
    """
    with only_attempt(folder):
        if not wanted():
            return None
        with signals_interrupt():
            return _all_of(take_turns(plan, folder))


def take_turns(plan: RunPlan, folder: RunFolder, order: Order = "run_by_run") -> RunInTurns:
    """Run a plan in a folder that this process holds, and leave its result; yield between two repeats.

    An exception that is thrown in at such a place ends the run as one in a repeat does. It is raised after the result
    is written.
    """
    started_s = time.monotonic()
    turns, spent = Turns(plan, folder, order), spent_trials(plan, folder)
    if spent:
        turns.forget()
    set_aside(folder, *spent, kept=turns.kept)
    result = yield from _attempt(plan, folder, turns)
    while is_one_more_trial(plan, folder, result):
        add_trial(folder, result)
        set_aside(folder)
        result = yield from _attempt(plan, folder, turns := Turns(plan, folder, order))
    took_s = turns.spent_s if order == "interleaved" else time.monotonic() - started_s
    say(f"{plan.name} · {in_words(plan, folder, result)} · after {duration(took_s)}")
    return result


def _all_of(turns: RunInTurns) -> RunResult:
    """Let a run take all its turns."""
    while True:
        try:
            next(turns)
        except StopIteration as ended:
            result: RunResult = ended.value
            return result


def _attempt(plan: RunPlan, folder: RunFolder, turns: Turns) -> RunInTurns:
    """Write a result whatever happens, so that no ended run seems to go on."""
    folder.write(folder.plan_path, plan)
    folder.event("running", **process_identity())
    environment_here = capture(Runtime(plan).installed, folder.path)
    ending = UNEXPECTED
    try:
        unable = preflight(plan, detect())
        if not unable:
            plan, unable = settle(with_source(plan), folder, run_one)
            folder.write(folder.plan_path, plan)
        ending = unable or (yield from _run_repeats(plan, folder, turns))
    except LlmexpError as error:
        ending = Ending(RunStatus.FAILED, str(error))
    except KeyboardInterrupt as interruption:
        ending = interrupted_by(interruption)
        raise
    finally:
        with signals_ignored():
            result = conclude(plan, folder, ending, environment_here | _others(plan, folder), turns)
    return result


def _run_repeats(plan: RunPlan, folder: RunFolder, turns: Turns) -> Generator[None, None, Ending]:
    if few := too_few_cores(plan):
        say(few)
    env = prepare(plan, folder.path / FETCH_LOG)
    progress, index = Progress(plan, turns.order), turns.kept
    while index < plan.config.measure.repeats and not (index and precise_enough(plan, folder.repeats())):
        if index > turns.kept:
            yield
        ending = _take_turn(plan, folder.repeat(index), env, turns, progress)
        if ending is not SUCCESS:
            return ending
        index += 1
    return SUCCESS


def _take_turn(plan: RunPlan, repeat: Path, env: Mapping[str, str], turns: Turns, progress: Progress) -> Ending:
    """Measure one repeat, beside samples of the machine."""
    folder, index = RunFolder(repeat.parent), int(repeat.suffix[1:])
    ending, limits = UNEXPECTED, Limits(plan.config.measure, time.monotonic() - turns.spent_s)
    check_still_mine(folder, asking=True)
    turns.begin(index)
    progress.begin(index, repeat)
    try:
        with SystemSampler(folder.system_path, SYSTEM_INTERVAL_S, folder.rank_processes), display(progress) as show:
            ending = _run_repeat(plan, repeat, env, limits, show)
    finally:
        get_engine(plan.config.task.name, plan.config.engine.name).clean_up(plan, folder.path)
        turns.end(index, ending is SUCCESS)
    return ending


def _run_repeat(
    plan: RunPlan, repeat: Path, env: Mapping[str, str], limits: Limits, tick: Callable[[], None]
) -> Ending:
    kills, team = oom_kills(), _team(plan, RunFolder(repeat.parent))
    with team.started(repeat, stack_digest(plan)) as places:
        words = plan.command.words(folder=repeat.absolute(), **places)
        with Group(Runtime(plan).start(words, agent_log(repeat), env), team.members) as group:
            reached = watch(group, repeat, limits, tick)
            exit_code = group.stop()
    killed_for_memory = oom_kills() > kills or any(member.killed_for_memory for member in team.members)
    launcher = "rank 0" if plan.config.engine.launcher == PYTHON else group.launcher
    ending = (
        reached or _of_others(group) or classify(Ended(repeat, plan.processes, exit_code, killed_for_memory, launcher))
    )
    return _advised(plan, repeat, ending)


def _team(plan: RunPlan, folder: RunFolder) -> PeerNodes:
    return peers_of(place_of(plan.config), plan.config.measure.no_progress_timeout_s, folder.path.parent)


def _others(plan: RunPlan, folder: RunFolder) -> dict[str, Any]:
    """Return the names and processors of the other machines, where a run takes several."""
    if plan.config.hardware.nodes == 1:
        return {}
    members = sorted(_team(plan, folder).members, key=lambda member: member.node)
    return {"other_nodes": [str(member) for member in members], "other_nodes_cpu": [member.cpu for member in members]}


def _of_others(group: Group) -> Ending | None:
    """Return the ending that another machine caused, which no rank's report would explain."""
    if group.lost:
        return Ending(RunStatus.KILLED, f"{', '.join(map(str, group.lost))} was lost")
    unable = next(iter(group.unable), None)
    return Ending(unable.status, f"{unable}: {unable.reason}") if unable else None


def _advised(plan: RunPlan, repeat: Path, ending: Ending) -> Ending:
    """Return the ending with the advice appended to its reason."""
    advice = ""
    if ending.status is RunStatus.FAILED:
        advice = get_engine(plan.config.task.name, plan.config.engine.name).advice(plan.config, ending.reason)
    elif ending.status is RunStatus.TIMEOUT and not _has_steps(repeat):
        told = no_steps_hint(plan, Logs(repeat).read())
        advice = f"no step was reported: {told}" if told else ""
    return replace(ending, reason=f"{ending.reason}; {advice}") if advice else ending


def _has_steps(repeat: Path) -> bool:
    return any(path.stat().st_size for path in repeat.glob("samples.*.jsonl"))
