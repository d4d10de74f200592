"""The requests of a load point, as a client would send them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from planning import make_plan

from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.instant_server import FORM
from llmexp.launchers.serving.load import Request
from llmexp.launchers.serving.load_requests import requests_of
from llmexp.serving.plan.serving_plan import ServingPlan

Asked = Callable[..., list[Request]]


@pytest.fixture
def asked() -> Asked:
    def of(*words: str, point: int = 0) -> list[Request]:
        plan = make_plan("task=serve", "model=tiny", "hardware=cpu", "serve.requests=12", *words)
        assert isinstance(plan, ServingPlan)
        return requests_of(plan, plan.points[point], Client(Address("127.0.0.1", 1)), FORM)

    return of


def prompt_of(request: Request) -> list[int]:
    body = json.loads(request.message.partition(b"\r\n\r\n")[2])
    assert body["max_tokens"] == request.output_tokens
    prompt: list[int] = body["prompt"]
    assert len(prompt) == request.prompt_tokens
    return prompt


def test_requests_have_the_lengths_that_were_asked_for(asked: Asked) -> None:
    found = asked("serve.prompt.tokens=[5,9]", "serve.output.tokens=[2,3]", "serve.warmup_requests=4")
    assert [request.is_warmup for request in found] == [True] * 4 + [False] * 12
    assert [request.index for request in found] == list(range(16))
    assert {len(prompt_of(request)) for request in found} <= {5, 6, 7, 8, 9}
    assert {request.output_tokens for request in found} == {2, 3}


def test_measured_requests_are_the_same_whatever_warms_up_and_however_the_server_is_set(asked: Asked) -> None:
    few, many = (
        asked("serve.warmup_requests=1"),
        asked("serve.warmup_requests=7", "+engine.options.block_size=16"),
    )
    measured = [prompt_of(request) for request in few[1:]]
    assert [prompt_of(request) for request in many[7:]] == measured
    assert prompt_of(few[0]) not in measured


def test_no_prompt_comes_twice_in_a_run(asked: Asked) -> None:
    found = [prompt_of(request) for point in (0, 1) for request in asked("serve.rate=[1,2]", point=point)]
    assert len({tuple(prompt[:16]) for prompt in found}) == len(found)


def test_prompts_begin_with_a_shared_prefix(asked: Asked) -> None:
    found = asked("serve.prefix.tokens=6", "serve.prompt.tokens=3", "serve.warmup_requests=2")
    assert len({tuple(prompt_of(request)[:6]) for request in found[2:]}) == 1
    assert {request.prompt_tokens for request in found} == {9}


def test_requests_of_a_trace_have_its_lengths_and_share_its_blocks(asked: Asked, tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 20, "output_length": 3, "hash_ids": [0, 1]},
        {"timestamp": 9, "input_length": 30, "output_length": 4, "hash_ids": [0, 2]},
    ]
    (tmp_path / "trace.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = asked(f"serve.trace.file={tmp_path}/trace.jsonl", "serve.trace.block_tokens=16", "serve.rate=[]")
    first, second = (prompt_of(request) for request in found if not request.is_warmup)
    assert (len(first), len(second)) == (20, 30)
    assert first[:16] == second[:16]
    assert first[16:] != second[16:20]
    assert [request.output_tokens for request in found] == [3, 4, 3, 4]


def test_another_content_of_a_file_is_another_run(tmp_path: Path) -> None:
    words = ("task=serve", "model=tiny", "hardware=cpu", f"serve.prompt.tokens={tmp_path}/lengths")
    ids = []
    for text in ("5\n6\n", "5\n7\n"):
        (tmp_path / "lengths").write_text(text)
        ids.append(make_plan(*words).id)
    assert len(set(ids)) == 2
