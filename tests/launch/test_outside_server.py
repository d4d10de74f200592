"""A server that a run needs and somebody else started: the node that measures asks it before any rank starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Thread

import pytest
from planning import make_plan
from protocol_server import server

from llmexp.launch.detect import Detected
from llmexp.launch.preflight import no_answer, preflight
from llmexp.launch.runtime import SECRETS, Runtime
from llmexp.launch.server_address import API_KEY
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunStatus

LAPTOP = Detected("cpu", "cpu", "", 2, None)


@pytest.fixture
def address() -> Iterator[str]:
    found = server(0, "ids")
    Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{found.server_address[1]}"
    found.shutdown()
    found.server_close()


def plan(url: str, *words: str) -> RunPlan:
    return make_plan("task=serve", "hardware=cpu", "model=tiny", f"serve.address='{url}'", *words)


def test_a_server_that_answers_is_measured_whatever_is_installed_here(address: str) -> None:
    """Its own libraries are where it runs: here only the client's are needed."""
    for engine in ("vllm", "sglang", "lightllm", "tgi"):
        found = plan(address, f"engine={engine}")
        assert preflight(found, LAPTOP) is None
        assert "vllm" not in Runtime(found).installed.distributions
    assert no_answer(make_plan("task=serve", "hardware=cpu")) is None, "a server that is started is asked later"


def test_a_server_that_does_not_answer_this_node_is_a_failure_before_any_rank_starts() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        ending = preflight(plan(url), LAPTOP)
    assert ending
    assert ending.status is RunStatus.FAILED
    assert ending.reason.startswith(f"serve.address={url} does not answer from here: ")


def test_ranks_in_a_container_get_the_key_from_the_shell() -> None:
    assert API_KEY in SECRETS


def test_what_only_a_started_server_has_is_no_part_of_the_plan(address: str) -> None:
    found = plan(address, "engine=vllm", "serve.served_name=mine")
    assert found.memory is None, "nothing is held here"
    assert (found.server.command.argv, found.server.form.body["model"]) == ([], "mine")
    assert (found.dtype, found.comparison_key["dtype"], found.comparison_key["server"]) == (
        None,
        "its own dtype",
        address,
    )
    assert plan(address, "serve.dtype=bf16").dtype == "bf16"
    assert plan(address).id != plan(f"{address}/below").id
