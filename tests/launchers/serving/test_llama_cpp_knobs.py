"""The knobs of llama.cpp's server, each by what a real server says and does with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmexp.cli.resolvers import server_python
from llmexp.launchers.serving.engines.llama_cpp import ENGINE as LLAMA_CPP
from llmexp.launchers.serving.server.process import Patience, Server
from llmexp.launchers.serving.weights.model_folder import FolderRequest, ensure_model_folder
from llmexp.schema import DenseModel
from llmexp.serving.engine import ServingSpec

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(
        server_python("llama_cpp") is None,
        reason="needs an environment with llama.cpp: make serve-venv SERVER=llama_cpp",
    ),
]
MODEL = DenseModel(
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
SERVED = ServingSpec(MODEL, "fp32", "cpu", positions=256, requests=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("llama_cpp")


@contextmanager
def started(folder: Path, **knobs: Any) -> Iterator[tuple[Server, str]]:
    """Start a server and give it with all that it has said."""
    plan = LLAMA_CPP.server(replace(SERVED, knobs=knobs)).model_copy(update={"python": server_python("llama_cpp")})
    model = ensure_model_folder(FolderRequest(model=MODEL, dtype="fp32", seed=0, weights=plan.weights), folder)
    log = folder / "server.txt"
    log.write_text("")
    with Server(plan, model, log) as server:
        server.wait_ready(Patience(silent_s=600))
        yield server, " ".join(log.read_text().split())


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({}, "llama_context: n_batch = 256"),
        ({"max_batch_tokens": 64}, "llama_context: n_batch = 64"),
        ({"flash_attention": False}, "llama_context: flash_attn = disabled"),
        ({"flash_attention": True}, "llama_context: flash_attn = enabled"),
    ],
)
def test_the_server_computes_as_it_is_told(folder: Path, knobs: dict[str, Any], said: str) -> None:
    with started(folder, **knobs) as (_, log):
        assert said in log


@pytest.mark.parametrize("mapped", [True, False])
def test_weights_are_mapped_from_their_file_or_read_into_memory(folder: Path, mapped: bool) -> None:
    with started(folder, mmap=mapped) as (server, _):
        files = {region.path for process in server.processes() for region in process.memory_maps()}
        assert any(name.endswith("model.gguf") for name in files) == mapped
