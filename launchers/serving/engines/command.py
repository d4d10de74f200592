"""Any command that serves OpenAI's completions: a server of your own, or one that llmexp has no engine for."""

from __future__ import annotations

import shlex
from typing import get_args

from llmexp.errors import ConfigError
from llmexp.launch.server_address import API_KEY
from llmexp.launchers.serving.engines import lightllm, sglang, tgi, vllm
from llmexp.record.plan import Command
from llmexp.serving.engine import IGNORE_END, ServingEngine, ServingSpec, value
from llmexp.serving.plan.reported_memory import ReportedMemory
from llmexp.serving.plan.server_plan import MetricNames, RequestForm, ServerPlan
from llmexp.serving.record.server_samples import ServerMetric

COMMAND = "command"
PORT = "{port}"
# Of llama.cpp's own llama-server with --metrics.
LLAMA_SERVER: MetricNames = {
    "running": ("llamacpp:requests_processing",),
    "waiting": ("llamacpp:requests_deferred",),
    "kv_used_share": ("llamacpp:kv_cache_usage_ratio",),
    "generated_tokens": ("llamacpp:tokens_predicted_total",),
    "prompt_tokens": ("llamacpp:prompt_tokens_total",),
}
_KNOWN = (*(each.METRIC_NAMES for each in (vllm, sglang, tgi, lightllm)), LLAMA_SERVER)
# A command may start any of these servers: no name of one stands on another's page.
METRIC_NAMES: MetricNames = {
    metric: tuple(name for names in _KNOWN for name in names.get(metric, ())) for metric in get_args(ServerMetric)
}


class CommandEngine(ServingEngine):
    """It is told the command, with {port} and {folder}; whether the server takes token ids and ignore_eos; its routes.

    Its options are `command`, `token_ids`, `ignore_eos`, `ready` and `metrics`.
    """

    name = "command"
    modules = ()
    installed_by = "name an existing interpreter, or null if the command has no {python}"
    distributions = ()
    form_knobs = ("token_ids", "ignore_eos", "ready", "metrics")
    knobs = dict.fromkeys((COMMAND, *form_knobs), value(""))

    def reported_memory(self, served: ServingSpec) -> ReportedMemory:
        """What any of the known pages tells; in which dtype a command keeps its cache and its weights is not known."""
        return ReportedMemory(kv_tokens_told=[*vllm.KV_TOKENS, *sglang.KV_TOKENS])

    def server(self, served: ServingSpec) -> ServerPlan:
        """Return the given command; raise ConfigError where it has no {port}."""
        knobs = served.knobs
        argv = shlex.split(str(knobs.get(COMMAND) or ""))
        if not (served.is_running or any(PORT in word for word in argv)):
            raise ConfigError(
                f"engine.options.command={knobs.get(COMMAND)!r} has no {PORT}: give a command such as "
                "'my-server {folder} --port {port}', which listens there on 127.0.0.1"
            )
        more = {key: given for key, given in IGNORE_END.items() if key != "ignore_eos" or knobs.get("ignore_eos")}
        form = RequestForm.completions(bool(knobs.get("token_ids")), **more)
        ready, metrics = str(knobs.get("ready") or "/health"), knobs.get("metrics")
        return ServerPlan(
            command=Command(argv=argv),
            ready=ready,
            metrics=str(metrics) if metrics else None,
            metric_names=METRIC_NAMES if metrics else {},
            key_variable=API_KEY,
            form=form,
        )


ENGINE = CommandEngine()
