"""The servers that a sweep needs and does not start: they have to answer before its first run is recorded."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.errors import ConfigError
from llmexp.launch.preflight import no_answer
from llmexp.launch.stack import stack_digest
from llmexp.record.plan import RunPlan
from llmexp.sweep.measuring import folder_of
from llmexp.sweep.resume import why_run


def check_outside_servers(plans: Sequence[RunPlan]) -> None:
    """Raise ConfigError where a server does not answer from this machine.

    Runs that are not measured again need no server.
    """
    asked: set[str] = set()
    for plan in plans:
        server = plan.outside_server
        if server is None or server.url in asked or _is_answered(plan):
            continue
        asked.add(server.url)
        if why := no_answer(plan):
            raise ConfigError(why)


def _is_answered(plan: RunPlan) -> bool:
    return why_run(plan, folder_of(plan), stack_digest(plan), None) is None
