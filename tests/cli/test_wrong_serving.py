"""Wrong input of task=serve: one line with the key, the value and what can be, and nothing starts."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from made_up_tokens import TOKENS
from protocol_server import server

from llmexp.launch.detect import Detected
from llmexp.launch.server_address import API_KEY

WRONG = {
    "engine=vlm": ["unknown engine 'vlm'", "did you mean vllm?", "tgi"],
    "engine=torch": [
        "engine=torch belongs to task=pretrain or task=finetune: add that",
        "transformers",
        "with task=serve",
    ],
    "engine.options.block_sice=16": [
        "unknown engine.options of engine=transformers 'block_sice'",
        "did you mean block_size?",
        "kv_blocks",
    ],
    "engine=command": ["engine.options.command='' has no {port}", "my-server {folder} --port {port}"],
    "engine=tgi hardware=h100 engine.options.program=lxc": ["engine.options.program=lxc", "docker, podman"],
    "serve.quality.prompts=0": ["serve.quality.prompts=0: must be a whole number of at least 1"],
    "serve.quality=true serve.weights=own engine=vllm": ["serve.quality", "serve.weights=own"],
    "serve.rate=0": ["serve.rate.0=0: must be a number above 0 or max"],
    "serve.rate=1,-2": ["serve.rate.1=-2: must be a number above 0 or max"],
    "serve.rate=abc": ["serve.rate.0=abc: must be a number above 0 or max"],
    "serve.rate=[]": ["serve.rate and serve.concurrency are empty", "serve.rate=max"],
    "serve.concurrency=0": ["serve.concurrency.0=0: must be a whole number of at least 1"],
    "serve.requests=0": ["serve.requests=0: must be a whole number of at least 1"],
    "serve.prompt.tokens=5000": [
        "serve.prompt and serve.output: prompt 5000 + output 32 = 5032 tokens",
        "more than model.max_positions=4096",
    ],
    "method=F": ["method belongs to task=pretrain or task=finetune: add that, or leave method out"],
    "+method=F+R": ["method belongs to task=pretrain or task=finetune"],
    "model=hf model.path=a/b": ["task=serve takes a folder's own weights (model=a/b)", "such as model=7b"],
    "model=a/b": ["model.path=a/b: task=serve needs a local folder", "hf download a/b --local-dir"],
    "serve.texts.path=missing/a.jsonl": ["model=tiny is random and has no tokenizer for texts", "or =bytes"],
    "serve.texts.path=./a.jsonl serve.texts.tokenizer=bytes": ["serve.texts.path=./a.jsonl: no such file"],
    "serve.texts.path=a.jsonl serve.turns=2": ["serve.texts=a.jsonl and serve.turns", "leave one of them out"],
    "serve.texts.path=a.jsonl serve.texts.tokenizer=bytes serve.texts.max_tokens=5000": [
        "serve.texts.max_tokens=5000 is more than model.max_positions=4096"
    ],
    "serve.sampling.beams=2 serve.sampling.n=2": ["serve.sampling.beams=2: a search draws nothing", "n out"],
    "serve.sampling.best_of=4": ["write serve.sampling.n=<answers>, which all come back: vLLM has no best_of any more"],
    "serve.sampling.beams=2 serve.slo.ttft_s=1": ["serve.slo.ttft_s=1.0: answers of serve.sampling.beams come whole"],
    "serve.served_name=mine": ["serve.served_name=mine", "add serve.address, or leave it out"],
    "serve.address=here:8000": ["serve.address here:8000: expected http:// or https://"],
    "serve.address=ftp://here": ["serve.address ftp://here: expected http:// or https://"],
    "serve.address=http://here?key=mine": ["serve.address holds a URL with a login", "leave it out"],
    f"serve.address=http://here/{TOKENS['Hugging Face']}": ["serve.address holds a token (Hugging Face)"],
    "serve.address=http://here engine.options.block_size=3": [
        "engine.options.block_size=3 says how to start a server",
        "leave it out",
    ],
    "serve.address=http://here serve.weights=folder": ["serve.weights does nothing here: the server of serve.address"],
    "serve.weights=none": ["serve.weights=none: must be one of auto, folder, own"],
}


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmexp.cli.resolvers.detect", lambda: Detected("cpu", "cpu", "", 2, None))
    monkeypatch.delenv(API_KEY, raising=False)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens, and nobody can meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def check_refused(answer: tuple[int, str, str], expected: list[str]) -> None:
    code, out, err = answer
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("llmexp: ")
    for each in expected:
        assert each in err


@pytest.mark.parametrize("mode", [(), ("plan",)], ids=["run", "plan"])
@pytest.mark.parametrize("words", WRONG)
def test_wrong_input_is_one_line_and_starts_nothing(words: str, mode, llmexp, runner, here: Path) -> None:
    typed = [re.sub("=(.*://.*)", r"='\1'", word) for word in words.split()]
    hardware = [] if "hardware=" in words else ["hardware=cpu"]
    check_refused(llmexp(*mode, "task=serve", *hardware, *typed), WRONG[words])
    assert runner.ran == []
    assert list(here.iterdir()) == []


def test_an_address_that_does_not_answer_is_one_line_before_anything_is_recorded(
    llmexp, runner, here: Path, nobody: str
) -> None:
    words = ("task=serve", "hardware=cpu", f"serve.address='{nobody}'")
    check_refused(llmexp(*words), [f"serve.address={nobody} does not answer from here: "])
    assert runner.ran == []
    assert list(here.iterdir()) == []
    code, out, err = llmexp("plan", "--verbose", *words)
    assert (code, err) == (0, ""), "a plan may be made where the server is not"
    assert nobody in out


def test_a_key_that_is_missing_is_one_line_that_names_its_variable(llmexp, runner, here: Path, monkeypatch) -> None:
    found: ThreadingHTTPServer = server(0, "ids")
    monkeypatch.setattr(found.RequestHandlerClass, "do_GET", lambda self: self._answer(401, b""))
    Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    words = ("task=serve", "hardware=cpu", f"serve.address='http://127.0.0.1:{found.server_address[1]}'")
    try:
        check_refused(llmexp(*words), [f"answers 401: set {API_KEY}"])
        monkeypatch.setenv(API_KEY, "of another")
        check_refused(llmexp(*words), [f"answers 401: it refuses {API_KEY}"])
        monkeypatch.setenv(API_KEY, "with\u00e9")
        check_refused(llmexp(*words), [f"{API_KEY} has characters that an HTTP header cannot contain"])
    finally:
        found.shutdown()
        found.server_close()
    assert runner.ran == []
    assert list(here.iterdir()) == []
