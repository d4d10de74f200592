"""The rank process of task=serve: it starts the server, puts every load of the plan on it, and ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from llmexp.errors import ServerError
from llmexp.launch.server_address import API_KEY, api_key
from llmexp.launchers.rank.frame import Rank, main
from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client_overhead import client_overheads
from llmexp.launchers.serving.load import run
from llmexp.launchers.serving.profiling import profile
from llmexp.launchers.serving.prompting.source import PromptSource, prompt_source
from llmexp.launchers.serving.quality.asking import asked_answers
from llmexp.launchers.serving.quality.comparing import judged_answers
from llmexp.launchers.serving.search import search
from llmexp.launchers.serving.server.process import Patience, Server
from llmexp.launchers.serving.server.reported_memory import held
from llmexp.launchers.serving.server.running_server import AnyServer, RunningServer
from llmexp.launchers.serving.session import Session, TerminatedError
from llmexp.launchers.serving.watch.metrics_page import MetricsPage, PageError
from llmexp.launchers.serving.watch.server_watch import ServerWatch
from llmexp.launchers.serving.weights.checkpoint_folder import ensure_checkpoint_folder
from llmexp.launchers.serving.weights.model_folder import FolderRequest, ensure_model_folder
from llmexp.machine.accelerators.here import visible_gpus
from llmexp.machine.processes import peak_rss_bytes
from llmexp.machine.processor import usable_cores
from llmexp.record.samples import RankSummary
from llmexp.serving.plan.served_model import CheckpointModel, as_found, served_model
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.record.quality import QualitySummary
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.summary import ClientOverhead, ReportedBytes, ServingSummary

SERVER_LOG = "log.server.txt"
PAGE_WITHIN_S = 10.0


def work(plan: ServingPlan, rank: Rank) -> RankSummary:
    """Measure all load points on one server, a line of samples for each request."""
    try:
        return _on_a_server(plan, rank)
    except TerminatedError:
        # The server has been ended; who looks at how this process ended sees the signal.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise


def _on_a_server(plan: ServingPlan, rank: Rank) -> RankSummary:
    limits = Patience(silent_s=plan.config.serve.silent_timeout_s, in_all_s=plan.config.measure.timeout_s)
    source = prompt_source(plan)
    with _server(plan, rank) as server:
        start_s = server.wait_ready(limits, told=lambda line: print(f"server: {line}", flush=True))
        begin_s = time.perf_counter()
        with ServerWatch.of(server, rank.folder, begin_s, _gpus(plan)) as watch:
            probes = _measure(plan, rank, server, watch, source)
            window_s = time.perf_counter() - begin_s
            found = _held(server)
            answers = asked_answers(plan, server, source) if plan.config.serve.quality else None
            # A run whose every load is a probe has no load to put on the server once more.
            if plan.points and plan.server.profiler and rank.folder.name == f"repeat.{plan.config.measure.repeats - 1}":
                profile(plan, rank.folder, server, watch, source)
    # The server has ended: its memory and its cores are free for the process that is compared.
    quality = judged_answers(plan, rank.folder, answers) if answers is not None else None
    floors, no_floors = _floors(plan, probes, source)
    return ServingSummary(
        rank=rank.index,
        window_wall_s=window_s,
        peak_rss_bytes=peak_rss_bytes(),
        server_start_s=start_s,
        held=found,
        floors=floors,
        no_floors=no_floors,
        quality=quality,
        what_ran=found.sources | dict(source.account) | _key_account(plan) | _account(quality),
        environment={"interpreter": sys.executable},
    )


def _floors(plan: ServingPlan, probes: list[LoadPoint], source: PromptSource) -> tuple[list[ClientOverhead], str]:
    """Return the client's own share, or why it is not known: what was measured stands without it."""
    try:
        return client_overheads(plan, probes, source), ""
    except ServerError as error:
        print(f"the client's own share is not known: {error}", flush=True)
        return [], str(error)


def _account(quality: QualitySummary | None) -> dict[str, str]:
    return {"answers": quality.words} if quality else {}


def _key_account(plan: ServingPlan) -> dict[str, str]:
    """Say what became of LLMEXP_API_KEY, never what it is; nothing where none is set."""
    if plan.server.address or not api_key():
        return {}
    engine = plan.config.engine.name
    used = f"the server of engine={engine} wants it" if plan.server.key_variable else f"engine={engine} takes none"
    print(f"{API_KEY}: {used}", flush=True)
    return {"api_key": used}


def _server(plan: ServingPlan, rank: Rank) -> AnyServer:
    """Return the server that runs already, else one that is started for this run."""
    if plan.server.address:
        return RunningServer(plan.server)
    log, model = rank.folder / SERVER_LOG, served_model(plan.config.model)
    if isinstance(model, CheckpointModel):
        return Server(plan.server, ensure_checkpoint_folder(as_found(model)), log, _threads(plan))
    server, adapters = plan.server, plan.config.serve.adapters
    if adapters:
        server = server.with_adapters(ensure_model_folder(_wanted(plan).of_adapters(adapters)))
    return Server(server, ensure_model_folder(_wanted(plan)), log, _threads(plan))


def _measure(
    plan: ServingPlan, rank: Rank, server: AnyServer, watch: ServerWatch, source: PromptSource
) -> list[LoadPoint]:
    """Put all loads on the server, which is looked at before and after each; return those that a search added.

    Raises ServerError where the server ends, hangs, or answered no request of any load.
    """
    answered, problem = 0, ""
    with rank.samples_path.open("a") as file:
        own: list[RequestSample] = []

        def done(sample: RequestSample) -> None:
            nonlocal answered, problem
            file.write(sample.model_dump_json() + "\n")
            file.flush()
            answered, problem = answered + (not sample.problem), sample.problem
            if not sample.warmup:
                own.append(sample)

        session = Session(plan, server, done, watch, source)

        def measure(point: LoadPoint) -> list[RequestSample]:
            own.clear()
            run(session.measure(point))
            return own

        for point in plan.points:
            measure(point)
        probes = search(plan, rank.folder, measure)
    if not answered:
        raise server.useless(f"no request got a complete answer; the last one: {problem}")
    return probes


def _held(server: AnyServer) -> ReportedBytes:
    """Return what the server holds, after its loads: one may make its KV cache only for the first request."""
    plan, texts = server.plan, {"log": server.first_words()}
    if plan.metrics and any(told.where == "page" for told in plan.reported_memory.every_told):
        page = MetricsPage(Address.of(server.url), plan.metrics, plan.metric_names, server.headers)
        with contextlib.suppress(PageError), contextlib.closing(page):
            texts["page"] = page.text(PAGE_WITHIN_S)
    return held(plan.reported_memory, texts, server.folder)


def _wanted(plan: ServingPlan) -> FolderRequest:
    config = plan.config
    assert plan.dtype
    return FolderRequest(model=config.model, dtype=plan.dtype, seed=config.seed, weights=plan.server.weights)


def _gpus(plan: ServingPlan) -> list[str]:
    """Return the UUIDs of the GPUs that the server takes: the first of those that are visible."""
    if plan.config.hardware.device == "cpu" or plan.server.address:
        return []
    return [gpu.uuid for gpu in visible_gpus()[: plan.devices]]


def _threads(plan: ServingPlan) -> int:
    """Return the threads of each process that computes on a CPU: all cores but one, which is the client's."""
    return plan.config.measure.threads_per_rank or max(1, (usable_cores() - 1) // plan.devices)


if __name__ == "__main__":
    main(work, lambda: ServingPlan)
