"""Pages of metrics, by a real server: those of every engine, and those that do not come, or not wholly."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import paged_server
import pytest
from paged_server import PATIENCE_S, PagedServer

from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.engines import command, lightllm, sglang, tgi, vllm
from llmexp.launchers.serving.watch.metrics_page import MetricsPage, PageError
from llmexp.serving.analysis.server_load import server_load
from llmexp.serving.plan.server_plan import MetricNames
from llmexp.serving.record.server_samples import ServerSample

SOON_S = 0.3


@pytest.fixture
def server() -> Iterator[PagedServer]:
    with PagedServer(paged_server.VLLM).running() as running:
        yield running


def page_of(server: PagedServer, names: MetricNames = vllm.METRIC_NAMES, **more: Any) -> MetricsPage:
    return MetricsPage(server.address, "/metrics", names, **more)


def read(server: PagedServer, names: MetricNames = vllm.METRIC_NAMES, within_s: float = PATIENCE_S) -> dict[str, float]:
    page = page_of(server, names)
    try:
        return dict(page.read(within_s))
    finally:
        page.close()


SAID = {
    "VLLM": {
        "running": 32,
        "waiting": 968,
        "kv_used_share": 0.875,
        "preemptions": 3,
        "prefix_queried_tokens": 4096,
        "prefix_hit_tokens": 1024,
        "draft_steps": 125,
        "drafted_tokens": 500,
        "accepted_tokens": 350,
        "generated_tokens": 1048576,
        "prompt_tokens": 16384,
    },
    "SGLANG": {
        "running": 5,
        "waiting": 2,
        "kv_used_share": 0.28,
        "accepted_share": 0.6,
        "draft_width": 4,
        "tokens_per_draft_step": 2.8,
        "preemptions": 48,
        "prefix_queried_tokens": 1000,
        "prefix_hit_tokens": 100,
        "generated_tokens": 640,
        "prompt_tokens": 1000,
    },
    "TGI": {
        "running": 4,
        "waiting": 7,
        "accepted_tokens": 30,
        "draft_steps": 20,
        "prompt_steps": 12,
        "generated_tokens": 240,
        "prompt_tokens": 768,
    },
    "LIGHTLLM": {
        "running": 16,
        "waiting": 9,
        "prefix_queried_tokens": 1600,
        "prefix_hit_tokens": 400,
        "generated_tokens": 800,
        "prompt_tokens": 1600,
    },
    "LLAMA_SERVER": {"running": 4, "waiting": 46, "generated_tokens": 128, "prompt_tokens": 512},
}
# What counters say once ten more passes have verified drafts.
COUNTED = {
    "VLLM": {
        "} 125.0": "} 135.0",
        "} 500.0": "} 530.0",
        f"accepted_tokens_total{paged_server.LABELS} 350.0": "accepted_tokens_total 368.0",
    },
    "TGI": {"tokens_sum 30": "tokens_sum 48", "tokens_count 20": "tokens_count 30"},
}
OWN = {each.ENGINE.name.upper(): each.METRIC_NAMES for each in (vllm, sglang, tgi, lightllm)}


@pytest.mark.parametrize("name", SAID)
def test_a_page_is_read_by_its_engines_names_and_by_those_of_any_command(server: PagedServer, name: str) -> None:
    server.page = getattr(paged_server, name)
    assert read(server, OWN.get(name, command.LLAMA_SERVER)) == SAID[name]
    assert read(server, command.METRIC_NAMES) == SAID[name]


@pytest.mark.parametrize(
    ("name", "ratio", "tokens"),
    [
        ("VLLM", 0.6, 2.8),
        ("SGLANG", 0.6, 2.8),
        ("TGI", None, 2.8),
        ("LIGHTLLM", None, None),
        ("LLAMA_SERVER", None, None),
    ],
)
def test_the_same_drafts_have_one_acceptance_whichever_server_tells_of_them(
    server: PagedServer, name: str, ratio: float | None, tokens: float | None
) -> None:
    """Ten passes with 3 proposed tokens, 18 of 30 accepted; TGI does not say how many it proposed."""
    before = getattr(paged_server, name)
    after = before
    for begin, end in COUNTED.get(name, {}).items():
        assert begin in before
        after = after.replace(begin, end)
    samples = []
    for at_s, page in enumerate((before, after)):
        server.page = page
        samples.append(ServerSample(at_s=at_s, page=read(server, OWN.get(name, command.LLAMA_SERVER))))
    load = server_load(samples, 0, 1)
    assert (load.draft_acceptance_ratio, load.tokens_per_draft_step) == (
        ratio and pytest.approx(ratio),
        tokens and pytest.approx(tokens),
    )


def test_several_schedulers_are_added_up_but_for_shares_which_are_averaged(server: PagedServer) -> None:
    server.page = paged_server.VLLM + paged_server.VLLM.replace('engine="0"', 'engine="1"').replace("0.875", "0.125")
    told = read(server)
    assert (told["running"], told["preemptions"], told["kv_used_share"]) == (64, 6, 0.5)


def test_of_two_names_the_first_on_the_page_counts(server: PagedServer) -> None:
    older = "vllm:gpu_cache_usage_perc 0.5\n"
    server.page = older
    assert read(server) == {"kv_used_share": 0.5}
    server.page = older + "vllm:kv_cache_usage_perc 0.25\n"
    assert read(server) == {"kv_used_share": 0.25}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (r'vllm:num_requests_running{model_name="a } 5\" {, \\"} 2', 2.0),
        ("vllm:num_requests_running\t3e1 1788184174081", 30.0),
        ("vllm:num_requests_running 4\r", 4.0),
        ("vllm:num_requests_running{} 1", 1.0),
        ("vllm:num_requests_running NaN", None),
        ("vllm:num_requests_running +Inf", None),
        ("vllm:num_requests_running many", None),
        ("vllm:num_requests_running", None),
        ("# vllm:num_requests_running 7", None),
        ("vllm:num_requests_running_total 8", None),
    ],
)
def test_a_line_is_read_as_the_format_has_it(server: PagedServer, line: str, value: float | None) -> None:
    server.page = f"vllm:num_requests_waiting 1\n{line}\n"
    assert read(server).get("running") == value


def test_the_connection_is_kept_and_headers_are_sent(server: PagedServer) -> None:
    page = page_of(server, headers={"Authorization": "Bearer secret"})
    for _ in range(3):
        page.read(PATIENCE_S)
    page.close()
    assert server.connections == 1
    assert [one["Authorization"] for one in server.headers] == ["Bearer secret"] * 3


@pytest.mark.parametrize("after_bytes", [0, 100])
def test_a_page_that_hangs_is_a_gap_and_the_next_one_is_read(server: PagedServer, after_bytes: int) -> None:
    server.hangs_after_bytes = after_bytes
    page = page_of(server)
    with pytest.raises(PageError, match=r"no whole page within 0\.3 s"):
        page.read(SOON_S)
    server.hangs_after_bytes = None
    assert page.read(PATIENCE_S)["running"] == 32
    page.close()


def test_gauges_whose_sum_is_no_number_are_left_out(server: PagedServer) -> None:
    server.page = "".join(f'vllm:num_requests_running{{engine="{each}"}} 1e308\n' for each in range(3))
    server.page += "vllm:num_requests_waiting 2\n"
    assert read(server) == {"waiting": 2}


def test_a_page_of_an_error_or_of_something_else_is_a_gap(server: PagedServer) -> None:
    server.status = 503
    with pytest.raises(PageError, match="status 503"):
        read(server)
    server.status, server.page = 200, "<html><body>Not here</body></html>\n"
    with pytest.raises(PageError, match="none of the engine's metrics"):
        read(server)


def test_a_page_that_is_cut_off_is_a_gap(server: PagedServer) -> None:
    server.missing_bytes = 10
    with pytest.raises(PageError, match=r"missing|IncompleteRead"):
        read(server)


def test_a_number_that_may_have_been_cut_off_is_not_read(server: PagedServer) -> None:
    server.hides_length, server.page = True, "vllm:num_requests_running 3\nvllm:num_requests_waiting 12"
    assert read(server) == {"running": 3}


def test_no_server_is_a_gap() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    page = MetricsPage(Address("127.0.0.1", port), "/metrics", vllm.METRIC_NAMES)
    with pytest.raises(PageError, match="ConnectionRefusedError"):
        page.read(PATIENCE_S)
