"""The client's own share of what it measures: the same load on a server that answers at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil

from llmexp.errors import ServerError
from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.instant_server import FORM
from llmexp.launchers.serving.load import Load, run
from llmexp.launchers.serving.load_requests import NO_SOURCE, requests_of
from llmexp.launchers.serving.prompting.source import PromptSource
from llmexp.launchers.serving.session import put
from llmexp.record.port import HOST
from llmexp.serving.analysis.load_window import LoadWindow
from llmexp.serving.analysis.percentiles import percentile
from llmexp.serving.analysis.request_latency import latencies
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.summary import ClientOverhead

INSTANT = "the instant server, by which the client's own share is measured,"
INSTANT_SERVER = "llmexp.launchers.serving.client.instant_server"
# An open load is repeated for so many seconds, as its requests do not disturb each other.
OPEN_S, FEWEST, MOST = 5.0, 10, 1000


def client_overheads(
    plan: ServingPlan, probes: Sequence[LoadPoint] = (), source: PromptSource = NO_SOURCE
) -> list[ClientOverhead]:
    """Measure every load against the instant server, one that comes again once only.

    Raises ServerError where that server does not start, or does not answer.
    """
    of_load: dict[str, ClientOverhead] = {}
    found = []
    with _instant_server() as port:
        for point in (*plan.points, *probes):
            load = str(point.model_copy(update={"probe": None}))
            if load not in of_load:
                of_load[load] = _floor(plan, point, port, source)
            found.append(of_load[load].model_copy(update={"point": point.number}))
    return found


def _floor(plan: ServingPlan, point: LoadPoint, port: int, source: PromptSource) -> ClientOverhead:
    wanted = ceil(point.rate_per_s * OPEN_S) if point.rate_per_s else MOST
    count = min(point.requests, max(FEWEST, wanted))
    found: list[RequestSample] = []

    async def going() -> None:
        async with Client(Address(HOST, port)) as client:
            every = requests_of(_without_thinking(plan), point, client, FORM, source)
            for requests in (every[: point.warmup], every[point.warmup :][:count]):
                await put(Load(client, FORM, found.append), plan, point, requests)

    run(going())
    measured = [sample for sample in found if not sample.warmup]
    if problem := next((sample.problem for sample in measured if sample.problem), ""):
        raise ServerError(f"{INSTANT} did not answer at {point}: {problem}")
    times_s = latencies(measured)
    return ClientOverhead(
        point=point.number,
        requests=len(measured),
        requests_per_s=LoadWindow.of(measured).per_s(len(measured)),
        ttft_p50_s=percentile(times_s["ttft"], 50),
        ttft_p99_s=percentile(times_s["ttft"], 99),
        end_to_end_p50_s=percentile(times_s["end_to_end"], 50),
    )


def _without_thinking(plan: ServingPlan) -> ServingPlan:
    """Return the plan without time to think between turns, which would hide how much the client can send."""
    serve = plan.config.serve.model_copy(update={"think_time_s": 0.0})
    return plan.model_copy(update={"config": plan.config.model_copy(update={"serve": serve})})


@contextmanager
def _instant_server() -> Iterator[int]:
    """Give the port of an instant server in a process of its own; raises ServerError where it does not start.

    It writes each event by itself, as a server does that has one token at a time.
    """
    command = [sys.executable, "-m", INSTANT_SERVER, "--apart"]
    with _started(command) as server:
        try:
            assert server.stdout
            said = server.stdout.readline()
            if not said:
                raise ServerError(f"{INSTANT} did not start")
            yield int(said)
        finally:
            server.kill()


def _started(command: list[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise ServerError(f"{INSTANT} did not start: {error}") from None
