"""task=serve as a person types it: a server of one's own command, and one that runs already and wants a key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from patience import HANG_S
from protocol_server import greedy, server

from llmexp.launch.server_address import API_KEY
from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.load_requests import requests_of
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import RunResult
from llmexp.record.samples import read_samples
from llmexp.serving.plan.server_plan import RequestForm
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.record.quality import QualityRecord, quality_path
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.summary import ServingSummary

PROTOCOLS = Path(__file__).with_name("protocol_server.py")
pytestmark = pytest.mark.ranks
KEY = "made-up-key-0123456789"
WORDS = (
    *("task=serve", "hardware=cpu", "model=tiny", "serve.rate=max,200", "serve.requests=6", "serve.warmup_requests=2"),
    *("serve.prompt.tokens=9", "serve.output.tokens=5", "measure.threads_per_rank=1"),
)
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def llmexp(tmp_path: Path) -> Run:
    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        own = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        command = [sys.executable, "-m", "llmexp", *WORDS, *words]
        env = {name: value for name, value in os.environ.items() if name != API_KEY} | own | env
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=HANG_S)

    return run


@pytest.fixture
def address() -> Iterator[str]:
    found: ThreadingHTTPServer = server(0, "ids", KEY)
    Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{found.server_address[1]}"
    found.shutdown()
    found.server_close()


def the_run(folder: Path) -> tuple[RunFolder, RunResult]:
    (found,) = find_runs(folder / "outputs")
    result = found.result()
    assert result
    return found, result


def check_measured(folder: Path) -> ServingSummary:
    """Every request of both loads has the tokens of its own prompt, and the run its result."""
    found, result = the_run(folder)
    assert (result.status, result.reason) == ("success", "")
    samples = read_samples(found.repeats()[0] / "samples.0.jsonl", RequestSample)
    assert [sample.problem for sample in samples] == [""] * 16
    assert [sample.differences for sample in samples] == [[]] * 16
    assert {(sample.point, sample.index): sample.token_ids for sample in samples} == expected(found)
    assert {sample.index for sample in samples if sample.warmup} == {0, 1, 8, 9}
    assert [point.params["load"] for point in result.points] == ["open", "open"]
    summary = ServingSummary.model_validate_json((found.repeats()[0] / "rank.0.json").read_text(), strict=False)
    assert len(summary.floors) == 2
    return summary


def expected(found: RunFolder) -> dict[tuple[int, int], list[int]]:
    """What the server generates for the prompts of the plan."""
    plan = ServingPlan.read(found.plan_path)
    client, form = Client(Address("127.0.0.1", 1)), RequestForm.completions(token_ids=True)
    tokens: dict[tuple[int, int], list[int]] = {}
    for point in plan.points:
        before = len(tokens)  # indices count over all loads of a run
        for request in requests_of(plan, point, client, form):
            prompt = json.loads(request.message.partition(b"\r\n\r\n")[2])["prompt"]
            tokens[point.number, before + request.index] = greedy(prompt, request.output_tokens)
    return tokens


@pytest.mark.slow
def test_a_server_of_ones_own_command_is_started_measured_and_ended(llmexp: Run, tmp_path: Path) -> None:
    command = f"{{python}} {PROTOCOLS} {{port}} words {{folder}}"
    done = llmexp("engine=command", f"engine.options.command='{command}'", "tracking=none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert check_measured(tmp_path).server_start_s


@pytest.mark.slow
def test_a_server_that_is_started_gets_the_key_by_its_environment_alone(llmexp: Run, tmp_path: Path) -> None:
    command = f"{{python}} {PROTOCOLS} {{port}} words {{folder}}"
    done = llmexp("engine=command", f"engine.options.command='{command}'", "tracking=none", **{API_KEY: KEY})
    assert done.returncode == 0, done.stdout + done.stderr
    check_measured(tmp_path)
    _, result = the_run(tmp_path)
    assert result.what_ran["api_key"] == "the server of engine=command wants it"
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []
    assert KEY not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_server_that_runs_already_is_measured_and_its_key_is_recorded_nowhere(
    llmexp: Run, tmp_path: Path, address: str
) -> None:
    words = ("engine=vllm", f"serve.address='{address}'", f"tracking.uri=sqlite:///{tmp_path}/mlflow.db")
    done = llmexp(*words, **{API_KEY: KEY})
    assert done.returncode == 0, done.stdout + done.stderr
    summary = check_measured(tmp_path)
    assert summary.server_start_s is None, "it was not started here"
    assert not (tmp_path / "cache" / "llmexp" / "models").exists(), "nothing is written for it"
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / "mlflow.db" in written
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []
    assert KEY not in done.stdout + done.stderr
    again = llmexp(*words, "serve.rate=max,200")
    assert again.returncode == 0, "a run that has its answer needs neither server nor key"


def test_requests_that_a_server_refuses_are_told_by_its_words_without_the_key(
    llmexp: Run, tmp_path: Path, address: str
) -> None:
    """It is open at /health, and repeats in its refusal what it was given."""
    done = llmexp("engine=vllm", f"serve.address='{address}'", "tracking=none", **{API_KEY: "another-key-987"})
    found, _ = the_run(tmp_path)
    written = b"".join(path.read_bytes() for path in found.path.rglob("*") if path.is_file())
    assert b"HTTP status 401: no such key: " in written
    assert b"another-key-987" not in written
    assert "another-key-987" not in done.stdout + done.stderr


def test_a_server_whose_answers_are_not_those_of_its_weights_is_told(llmexp: Run, tmp_path: Path) -> None:
    """Its tokens are a function of the prompt, and no model's; of the checkpoint of its folder it reads nothing."""
    command = f"{{python}} {PROTOCOLS} {{port}} words {{folder}}"
    quality = ("serve.quality=true", "serve.quality.prompts=6", "serve.quality.output_tokens=4", "serve.rate=max")
    done = llmexp("engine=command", f"engine.options.command='{command}'", "tracking=none", *quality)
    assert done.returncode == 0, done.stdout + done.stderr
    found, result = the_run(tmp_path)
    assert result.what_ran["answers"].startswith("changed: ")
    assert result.stability
    assert "answers" in [doubt.kind for doubt in result.stability.reasons]
    share, counted = (result.metrics[name] for name in ("agreeing_tokens_share", "counted_tokens"))
    assert share
    assert share.mean < 0.2
    assert counted
    record = QualityRecord.model_validate_json(quality_path(found.repeats()[0]).read_text())
    assert [(len(each.prompt), len(each.tokens or ())) for each in record.answers] == [(10, 4)] * 6
    assert [each.tokens for each in record.answers] == [greedy(each.prompt, 4) for each in record.answers]
    assert len(record.tokens) == 24 >= counted.mean
    assert [point.metrics["requests"] for point in result.points if point.metrics["requests"]]
    assert "so it did not do the work of its weights" in " ".join(done.stdout.split())
