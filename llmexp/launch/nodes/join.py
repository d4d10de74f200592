"""Another machine of a run: it starts and ends its part of the ranks as the first one says, and leaves recording to that one."""

from __future__ import annotations

import select
import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

from llmexp.errors import LlmexpError
from llmexp.launch.compilers import compiler_variables
from llmexp.launch.display import say
from llmexp.launch.nodes.place import Place
from llmexp.launch.nodes.team import Line, NodeError
from llmexp.launch.ops import prepare_ops
from llmexp.launch.preflight import preflight
from llmexp.launch.runtime import Runtime
from llmexp.launch.spawn import Agent, agent_log, environment
from llmexp.launch.stack import stack_digest
from llmexp.plan.detect import detect
from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder
from llmexp.record.system import SystemSampler

# The first machine may measure runs of its own before it needs the others.
FIND_WITHIN_S = 6 * 3600.0
AGAIN_AFTER_S = 1.0
# Of a file that another machine has written: NFS shows it when its caches expire.
SEEN_WITHIN_S = 90.0


@cache
def join(place: Place) -> None:
    """Serve the first machine until it has no more runs, once a process; raises NodeError where it is not found or lost in the middle of a run."""
    line = _found(place)
    line.say(event="here", node=place.node, host=socket.gethostname())
    say(f"node {place.node} of {place.nodes}: the first node, {place.address}, measures and records")
    while line.alive:
        message = line.wait(FIND_WITHIN_S)
        if message and message["event"] == "start":
            _take_part(line, place, message)
    line.close()


def _found(place: Place) -> Line:
    deadline = time.monotonic() + FIND_WITHIN_S
    while True:
        try:
            return Line(socket.create_connection((place.address, place.port), timeout=10))
        except OSError as error:
            if time.monotonic() > deadline:
                raise NodeError(f"node 0 is not to be found at {place.address}:{place.port} ({error})") from None
            time.sleep(AGAIN_AFTER_S)


def _take_part(line: Line, place: Place, message: dict[str, Any]) -> None:
    """Run this machine's ranks of a repeat and say how they ended."""
    repeat = Path(message["repeat"])
    try:
        plan = _plan(repeat.parent / "plan.json")
        code = _run(line, plan, repeat, message | {"node": place.node, "folder": repeat})
        line.say(event="ended", code=code, reason="")
    except LlmexpError as error:
        line.say(event="ended", code=1, reason=str(error))
    if not line.alive:
        raise NodeError("node 0 was lost; its ranks here were ended")


def _run(line: Line, plan: RunPlan, repeat: Path, places: dict[str, Any]) -> int:
    unable = preflight(plan, detect())
    if unable:
        raise NodeError(unable.reason)
    if stack_digest(plan) != places["stack"]:
        raise NodeError("libraries, device or llmexp's code are other ones than those of node 0")
    env = environment(plan, prepare_ops(plan) | compiler_variables(plan))
    folder, log = RunFolder(repeat.parent), agent_log(repeat, places["node"])
    with SystemSampler(folder.path / f"system.{places['node']}.jsonl", elsewhere=folder.rank_processes), _started(plan, log, env, places) as agent:
        while not agent.ends_within(0):
            ends: list[Agent | Line] = [agent, line]
            ready = select.select(ends, [], [])[0]
            told = [message["event"] for message in line.heard()] if line in ready else []
            if "stacks" in told:
                agent.ask_for_stacks(folder.rank_processes())
            if "stop" in told or not line.alive:
                break
        return agent.stop()


def _started(plan: RunPlan, log: Path, env: dict[str, str], places: dict[str, Any]) -> Agent:
    return Runtime(plan).start(plan.command.words(**places), log, env)


def _plan(path: Path) -> RunPlan:
    deadline = time.monotonic() + SEEN_WITHIN_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise NodeError(f"{path} is not to be seen here: the outputs folder must be one that all nodes share")
        time.sleep(AGAIN_AFTER_S)
    return RunPlan.read(path)
