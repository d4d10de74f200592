"""A checkpoint with a tokenizer of its own, served as a person types it: its greedy outputs are the model's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from checkpoints import write_with_tokenizer
from patience import HANG_S
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from llmexp.cli.resolvers import server_python
from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.instant_server import FORM
from llmexp.launchers.serving.load_requests import requests_of
from llmexp.launchers.serving.prompting.source import prompt_source
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.samples import read_samples
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.record.requests import RequestSample

pytestmark = [pytest.mark.ranks, pytest.mark.slow]
WORDS = (
    *("task=serve", "model=./mine", "hardware=cpu", "tracking=none", "serve.rate=max", "serve.requests=4"),
    *("serve.warmup_requests=1", "serve.prompt.tokens=24", "serve.output.tokens=20", "measure.threads_per_rank=1"),
    "serve.quality=true",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_with_tokenizer(tmp_path / "mine")
    prompts = ["import os", "def f(x): return x", "caf\u00e9 \u2615", "class A: pass", "while True: break"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return tmp_path


def served(folder: Path, *words: str) -> RunFolder:
    command = [sys.executable, "-m", "llmexp", *WORDS, *words]
    env = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = find_runs(folder / "outputs")
    return found


def prompts_of(plan: ServingPlan) -> list[list[int]]:
    """The exact tokens of all requests, warm-up first."""
    found = requests_of(plan, plan.points[0], Client(Address("127.0.0.1", 1)), FORM, prompt_source(plan))
    return [json.loads(one.message.partition(b"\r\n\r\n")[2])["prompt"] for one in found]


def check_greedy(folder: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    model = AutoModelForCausalLM.from_pretrained(folder / "mine", dtype=torch.float32)
    model.generation_config = GenerationConfig(do_sample=False)
    tokenizer = AutoTokenizer.from_pretrained(folder / "mine")
    prompts = prompts_of(ServingPlan.read(run.plan_path))
    samples = read_samples(run.repeat(0) / "samples.0.jsonl", RequestSample)
    assert [(one.problem, one.differences) for one in samples] == [("", [])] * 5
    for one in samples:
        ids = torch.tensor([prompts[one.index]])
        made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)
        tokens = made[0, ids.shape[1] :].tolist()
        assert one.usage_prompt_tokens in (None, ids.shape[1])
        assert one.output_tokens == len(tokens) == 20, "no end token of its generation_config.json ends it"
        assert one.token_ids in (None, tokens)
        assert one.text == tokenizer.decode(tokens)
    result = run.result()
    assert result
    assert result.what_ran["answers"].startswith("same: ")


@pytest.mark.parametrize(
    "words",
    [pytest.param((), id="words", marks=pytest.mark.sweep), pytest.param(("serve.texts.path=a.jsonl",), id="texts")],
)
def test_transformers_serves_it(folder: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    check_greedy(folder, served(folder, *words), monkeypatch)


def test_vllm_serves_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if server_python("vllm") is None:
        pytest.skip("needs an environment with vLLM: make serve-venv")
    check_greedy(folder, served(folder, "engine=vllm", "serve.texts.path=a.jsonl"), monkeypatch)
