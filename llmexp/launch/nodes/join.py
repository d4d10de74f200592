"""Take part in a run as a further machine: start and end ranks as the first machine says.

The first machine does all recording.
"""

from __future__ import annotations

import select
import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

from llmexp.errors import LlmexpError
from llmexp.launch.detect import detect
from llmexp.launch.display import say
from llmexp.launch.ending import SUCCESS, Ending
from llmexp.launch.host_memory import HostMemory
from llmexp.launch.nodes.channel import PATIENCE_S, Channel
from llmexp.launch.nodes.messages import Ended, Here, Stacks, Start, Stop, Welcome
from llmexp.launch.nodes.place import NodeError, Place
from llmexp.launch.nodes.secret import read_secret
from llmexp.launch.preflight import preflight
from llmexp.launch.prepare import prepare
from llmexp.launch.runtime import Runtime
from llmexp.launch.spawn import Agent, agent_log
from llmexp.launch.stack import stack_digest
from llmexp.launch.watch import TICK_S, processes_of
from llmexp.machine.memory import oom_kills
from llmexp.record.environment import cpu
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunStatus
from llmexp.record.system import SystemSampler
from llmexp.registry import get_engine

# The first machine may measure runs of its own before it needs the others.
FIND_WITHIN_S = 6 * 3600.0
AGAIN_AFTER_S = 1.0
# The wait for a file that another machine has written: NFS shows it when its caches expire.
SEEN_WITHIN_S = 90.0


@cache
def join(place: Place, sweep: Path) -> None:
    """Serve the first machine until it has no more runs, once per process.

    Raises NodeError where it is not found or lost in the middle of a run.

    `sweep` is the folder that both machines share. Its secret proves that the peer is the first machine, and orders for
    runs outside of it are refused.
    """
    channel = _found(place, sweep)
    say(f"node {place.node} of {place.nodes}: the first node, {place.address}, measures and records")
    while channel.alive:
        message = channel.wait(FIND_WITHIN_S)
        if isinstance(message, Start):
            _take_part(channel, place, sweep, message)
    channel.close()


def _found(place: Place, sweep: Path) -> Channel:
    deadline = time.monotonic() + FIND_WITHIN_S
    say(f"node {place.node} of {place.nodes}: waits for node 0 at {place.address}:{place.port}")
    while time.monotonic() < deadline:
        try:
            channel = Channel(_connected(place), read_secret(sweep, place.port))
            channel.say(Here(node=place.node, host=socket.gethostname(), cpu=cpu()))
            if isinstance(channel.wait(PATIENCE_S), Welcome):
                return channel
            channel.close()
            why = f"what answers there does not know {sweep}'s secret"
        except OSError as error:
            why = str(error)
        time.sleep(AGAIN_AFTER_S)
    raise NodeError(f"node 0 cannot be reached at {place.address}:{place.port} ({why})")


def _connected(place: Place) -> socket.socket:
    connection = socket.create_connection((place.address, place.port), timeout=PATIENCE_S)
    connection.settimeout(None)
    return connection


def _take_part(channel: Channel, place: Place, sweep: Path, message: Start) -> None:
    """Run this machine's ranks of a repeat and report how they ended."""
    repeat, kills = Path(message.repeat), oom_kills()
    places = {"folder": repeat, "node": place.node, "address": message.address, "port": message.port}
    try:
        if repeat.parent.parent.resolve() != sweep.resolve():
            raise NodeError(f"node 0 asks for a run in {repeat.parent.parent}, and this is {sweep}")
        plan = _plan(repeat.parent / "plan.json")
        _check(plan, message.stack)
        code, ending = _run(channel, plan, places)
    except LlmexpError as error:
        code, ending = 1, Ending(RunStatus.FAILED, str(error))
    channel.say(Ended(code=code, reason=ending.reason, status=ending.status, killed_for_memory=oom_kills() > kills))
    if not channel.alive:
        raise NodeError("node 0 was lost; its ranks here were ended")


def _check(plan: RunPlan, stack: str) -> None:
    """Raise NodeError where this machine cannot do what the first one does."""
    unable = preflight(plan, detect())
    if unable:
        raise NodeError(unable.reason)
    if stack_digest(plan) != stack:
        raise NodeError("libraries, device or llmexp's code differ from those of node 0")


def _run(channel: Channel, plan: RunPlan, places: dict[str, Any]) -> tuple[int, Ending]:
    """Return the exit code of this machine's part, and the ending of the run that it causes, SUCCESS where none."""
    repeat = places["folder"]
    env = prepare(plan, repeat.parent / f"log.fetch.{places['node']}.txt")
    folder, log = RunFolder(repeat.parent), agent_log(repeat, places["node"])
    try:
        with (
            SystemSampler(folder.system_of(places["node"]), elsewhere=folder.rank_processes),
            _started(plan, log, env, places) as agent,
        ):
            exhausted = _attend(channel, agent, repeat)
            code = agent.stop()
    finally:
        get_engine(plan.config.task.name, plan.config.engine.name).clean_up(plan, repeat.parent)
    return (1, exhausted) if exhausted else (code, SUCCESS)


def _attend(channel: Channel, agent: Agent, repeat: Path) -> Ending | None:
    """Follow the first machine's messages until the ranks here end or must be ended.

    Returns the ending where this host's memory is exhausted, else None.
    """
    memory = HostMemory()
    while not agent.ends_within(0):
        ends: list[Agent | Channel] = [agent, channel]
        ready = select.select(ends, [], [], TICK_S)[0]
        told = [type(message) for message in channel.heard()] if channel in ready else []
        if Stacks in told:
            agent.ask_for_stacks(RunFolder(repeat.parent).rank_processes())
        if Stop in told or not channel.alive:
            return None
        if exhausted := memory.exhausted(lambda: processes_of(repeat)):
            return exhausted
    return None


def _started(plan: RunPlan, log: Path, env: dict[str, str], places: dict[str, Any]) -> Agent:
    return Runtime(plan).start(plan.command.words(**places), log, env)


def _plan(path: Path) -> RunPlan:
    deadline = time.monotonic() + SEEN_WITHIN_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise NodeError(f"{path} is not visible here: all nodes must share the outputs folder")
        time.sleep(AGAIN_AFTER_S)
    return RunPlan.read(path)
