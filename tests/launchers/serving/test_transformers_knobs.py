"""The knobs of `transformers serve`, each by its effect on a real server; it has no page of metrics to ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from llmexp.launchers.serving.client.completions import Completion, body_of
from llmexp.launchers.serving.engines.transformers import ENGINE as TRANSFORMERS
from llmexp.launchers.serving.server.process import Patience, Server
from llmexp.launchers.serving.weights.model_folder import FolderRequest, ensure_model_folder
from llmexp.record.port import HOST
from llmexp.schema import DenseModel
from llmexp.serving.engine import ServingSpec
from llmexp.serving.plan.server_plan import ServerPlan
from llmexp.serving.record.requests import RequestSample

pytestmark = [pytest.mark.ranks, pytest.mark.slow]
MODEL = DenseModel(
    name="small",
    architecture="llama",
    vocab_size=300,
    hidden_size=64,
    intermediate_size=128,
    num_layers=2,
    num_heads=2,
    num_kv_heads=2,
    head_dim=32,
    max_positions=512,
)
SERVED = ServingSpec(MODEL, "fp32", "cpu", positions=512, requests=2)
PROMPTS = [[(start + 7 * index) % 300 for index in range(1, 60)] for start in range(3)]
QUANTIZED = {
    "bnb-4bit": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "bnb-8bit": BitsAndBytesConfig(load_in_8bit=True),
}


@dataclass(frozen=True)
class Started:
    """A server, asked one request at a time."""

    plan: ServerPlan
    server: Server
    folder: Path

    def answer(self, prompt: list[int], count: int) -> RequestSample:
        """Return what came of a request."""
        connection = HTTPConnection(HOST, self.server.port, timeout=600)
        try:
            body = body_of(self.plan.form, prompt, count)
            headers = {"content-type": "application/json", **self.server.headers}
            connection.request("POST", self.plan.form.path, body, headers)
            response, found = connection.getresponse(), Completion(self.plan.form)
            found.headed(response.status)
            found.body(response.read(), 0.0)
            found.finish(0.0)
            return found.sample(0, (len(prompt), count), (0.0, 0.0), 0.0)
        finally:
            connection.close()

    def tokens(self, prompt: list[int], count: int) -> list[int]:
        """Return the ids of a request's output."""
        sample = self.answer(prompt, count)
        assert not sample.problem
        assert sample.token_ids
        return sample.token_ids


@contextmanager
def started(cache: Path, **knobs: Any) -> Iterator[Started]:
    plan = TRANSFORMERS.server(replace(SERVED, knobs=knobs))
    folder = ensure_model_folder(FolderRequest(model=MODEL, dtype="fp32", seed=0), cache)
    with Server(plan, folder, cache / "server.txt") as server:
        server.wait_ready(Patience(silent_s=600))
        yield Started(plan, server, folder)


def greedy(folder: Path, prompt: list[int], count: int, quantization: str | None = None) -> list[int]:
    config = QUANTIZED[quantization] if quantization else None
    model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, dtype=torch.float32).eval()
    ids = torch.tensor([prompt])
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0
    )
    return [int(token) for token in made[0, len(prompt) :]]


@pytest.mark.parametrize("quantization", [pytest.param("bnb-4bit", marks=pytest.mark.sweep), "bnb-8bit"])
def test_quantized_weights_are_those_of_bitsandbytes(tmp_path: Path, quantization: str) -> None:
    pytest.importorskip("bitsandbytes")
    with started(tmp_path, quantization=quantization) as found:
        answers = [found.tokens(prompt, 24) for prompt in PROMPTS]
        assert answers == [greedy(found.folder, prompt, 24, quantization) for prompt in PROMPTS]
        assert answers != [greedy(found.folder, prompt, 24) for prompt in PROMPTS]


@pytest.mark.parametrize(("block_size", "fits"), [(32, False), (128, True)])
def test_the_cache_has_the_blocks_that_are_set(tmp_path: Path, block_size: int, fits: bool) -> None:
    with started(tmp_path, block_size=block_size, kv_blocks=4) as found:
        assert (found.answer(PROMPTS[0] * 4, 8).problem == "") == fits


def test_without_continuous_batching_the_same_tokens_come_from_another_loop(tmp_path: Path) -> None:
    with started(tmp_path, continuous_batching=False) as found:
        assert found.tokens(PROMPTS[0], 24) == greedy(found.folder, PROMPTS[0], 24)
        assert "CB: False" in (tmp_path / "server.txt").read_text()
