"""Any command that serves OpenAI's completions: a server of your own, or one that llmexp has no engine for."""

from __future__ import annotations

import shlex

from llmexp.engines.serving.base import IGNORE_END, Served, ServingEngine, value
from llmexp.errors import ConfigError
from llmexp.plan.server_plan import RequestForm, ServerPlan
from llmexp.record.plan import Command

COMMAND = "command"
PORT = "{port}"


class CommandEngine(ServingEngine):
    """It is told the command, with {port} and {folder}; whether the server takes token ids and ignore_eos; its routes.

    Its options are `command`, `token_ids`, `ignore_eos`, `ready` and `metrics`.
    """

    name = "command"
    modules = ()
    installed_by = "name an interpreter that there is, or null where the command has no {python}"
    distributions = ()
    knobs = dict.fromkeys((COMMAND, "token_ids", "ignore_eos", "ready", "metrics"), value(""))

    def server(self, served: Served) -> ServerPlan:
        """Return the given command; raise ConfigError where it has no {port}."""
        knobs = served.knobs
        argv = shlex.split(str(knobs.get(COMMAND) or ""))
        if not any(PORT in word for word in argv):
            raise ConfigError(
                f"engine.options.command={knobs.get(COMMAND)!r} has no {PORT}: give a command such as "
                "'my-server {folder} --port {port}', which listens there on 127.0.0.1"
            )
        more = {key: given for key, given in IGNORE_END.items() if key != "ignore_eos" or knobs.get("ignore_eos")}
        form = RequestForm.completions(bool(knobs.get("token_ids")), **more)
        ready, metrics = str(knobs.get("ready") or "/health"), knobs.get("metrics")
        return ServerPlan(command=Command(argv=argv), ready=ready, metrics=str(metrics) if metrics else None, form=form)


ENGINE = CommandEngine()
