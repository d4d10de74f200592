"""Real servers on a CPU: each streams the greedy tokens of its folder's weights, as many as were asked for.

vLLM and llama.cpp are asked where `make serve-venv` has made their environments.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import torch

from llmexp.cli.resolvers import server_python
from llmexp.launchers.models.building import build, configuration
from llmexp.launchers.models.weights import seeded
from llmexp.launchers.serving.client.completions import body_of
from llmexp.launchers.serving.engines.llama_cpp import ENGINE as LLAMA_CPP
from llmexp.launchers.serving.engines.transformers import ENGINE as TRANSFORMERS
from llmexp.launchers.serving.engines.vllm import ENGINE as VLLM
from llmexp.launchers.serving.server.process import Patience, Server
from llmexp.launchers.serving.weights.model_folder import FolderRequest, ensure_model_folder
from llmexp.launchers.serving.words import tokens_of
from llmexp.record.port import HOST
from llmexp.schema import DenseModel
from llmexp.serving.engine import ServingEngine, ServingSpec
from llmexp.serving.plan.server_plan import ServerPlan

pytestmark = [pytest.mark.ranks, pytest.mark.slow]
TINY = DenseModel(
    name="small",
    architecture="llama",
    vocab_size=300,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    max_positions=256,
)
POSITIONS, REQUESTS = 256, 4


@dataclass(frozen=True)
class Answer:
    """What a streamed completion held: its events' texts, its usage where there was one, and why it ended."""

    status: int
    texts: list[str]
    usage: dict[str, int]
    finish: str | None

    @property
    def tokens(self) -> list[int]:
        return tokens_of("".join(self.texts))


class Asked:
    """Sends completions as the plan's form wants them."""

    def __init__(self, engine: str, plan: ServerPlan, server: Server) -> None:
        self.engine, self.plan, self.server = engine, plan, server

    def stream(self, prompt: list[int], tokens: int) -> Answer:
        form = self.plan.form
        connection = HTTPConnection(HOST, self.server.port, timeout=600)
        try:
            body = body_of(form, prompt, tokens)
            connection.request("POST", form.path, body, {"content-type": "application/json", **self.server.headers})
            response = connection.getresponse()
            return answer(response.status, response.read().decode())
        finally:
            connection.close()


def answer(status: int, text: str) -> Answer:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    events: list[dict[str, Any]] = [json.loads(line) for line in lines if line != "[DONE]"]
    choices = [choice for event in events for choice in event["choices"]]
    usage = next((event["usage"] for event in events if event.get("usage")), {})
    finish = next((choice["finish_reason"] for choice in choices if choice.get("finish_reason")), None)
    return Answer(status, [choice["text"] for choice in choices if choice["text"]], usage, finish)


def running(engine: ServingEngine, cache: Path, python: str | None = None) -> Iterator[Asked]:
    plan = engine.server(ServingSpec(TINY, "fp32", "cpu", POSITIONS, REQUESTS)).model_copy(update={"python": python})
    folder = ensure_model_folder(FolderRequest(model=TINY, dtype="fp32", seed=0, weights=plan.weights), cache)
    with Server(plan, folder, cache / f"{engine.name}.txt") as server:
        server.wait_ready(Patience(silent_s=600))
        yield Asked(engine.name, plan, server)
        assert server.stop() in {"vllm": (0, -signal.SIGTERM, -signal.SIGKILL)}.get(engine.name, (-signal.SIGTERM,))


@pytest.fixture(scope="module")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    yield from running(TRANSFORMERS, tmp_path_factory.mktemp("transformers"))


@pytest.fixture(scope="module")
def llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    python = server_python("llama_cpp")
    if python is None:
        pytest.skip("needs an environment with llama.cpp: make serve-venv SERVER=llama_cpp")
    yield from running(LLAMA_CPP, tmp_path_factory.mktemp("llama_cpp"), python)


@pytest.fixture(scope="module")
def vllm_python() -> str:
    python = server_python("vllm")
    if python is None:
        pytest.skip("needs an environment with vLLM: make serve-venv")
    return python


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory, vllm_python: str) -> Iterator[Asked]:
    yield from running(VLLM, tmp_path_factory.mktemp("vllm"), vllm_python)


@pytest.fixture(params=["transformers", "llama_cpp", "vllm"])
def asked(request: pytest.FixtureRequest) -> Asked:
    found: Asked = request.getfixturevalue(request.param)
    return found


def greedy(prompt: list[int], tokens: int) -> list[int]:
    config = configuration(TINY)
    model = build(config, torch.float32, "sdpa", weights=seeded(0), device=torch.device("cpu")).eval()
    ids = torch.tensor([prompt])
    made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False)
    return [int(token) for token in made[0, len(prompt) :]]


def test_a_stream_has_the_greedy_tokens_of_the_seeded_weights_one_an_event(asked: Asked) -> None:
    prompt = [5, 299, 0, 77, 77, 131]
    found = asked.stream(prompt, 24)
    assert found.tokens == greedy(prompt, 24)
    if asked.engine != "vllm":
        assert all(len(tokens_of(text)) == 1 for text in found.texts)
    assert found.finish == "length"
    if asked.engine != "llama_cpp":
        assert (found.usage["prompt_tokens"], found.usage["completion_tokens"]) == (6, 24)


def test_as_many_of_the_longest_requests_as_were_planned_fit_at_a_time(asked: Asked) -> None:
    prompts = [[index] * (POSITIONS // 2) for index in range(REQUESTS)]
    with ThreadPoolExecutor(REQUESTS) as pool:
        found = list(pool.map(lambda prompt: asked.stream(prompt, POSITIONS // 2), prompts))
    assert [len(one.tokens) for one in found] == [POSITIONS // 2] * REQUESTS
    asked.server.check()


def test_the_knobs_of_vllm_are_options_of_its_server(vllm_python: str) -> None:
    module = VLLM.server(ServingSpec(TINY, "fp32", "cpu", POSITIONS, REQUESTS)).command.argv[2]
    listed = subprocess.run([vllm_python, "-m", module, "--help=all"], capture_output=True, text=True, check=True)
    flags = {word for knob in VLLM.knobs.values() for given in (True, False) for word in knob(given)[:1]}
    assert flags - set(re.findall(r"--[a-z-]+", listed.stdout)) == set()


def test_wrong_input_is_answered_and_the_server_goes_on(asked: Asked) -> None:
    connection = HTTPConnection(HOST, asked.server.port, timeout=600)
    headers = {"content-type": "application/json", **asked.server.headers}
    connection.request("POST", asked.plan.form.path, "nonsense", headers)
    status = connection.getresponse().status
    connection.close()
    assert status == {"transformers": 422, "llama_cpp": 500, "vllm": 400}[asked.engine]
    assert len(asked.stream([1, 2, 3], 4).tokens) == 4
