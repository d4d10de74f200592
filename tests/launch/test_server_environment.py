"""Servers in environments of their own: what is asked there, and what a run says where it lacks one."""

from __future__ import annotations

import importlib.util
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from planning import make_plan

from llmexp.doctor.check_run import check_run
from llmexp.launch.code import snapshot
from llmexp.launch.detect import Detected
from llmexp.launch.preflight import missing_server, preflight
from llmexp.launch.runtime import Runtime
from llmexp.launch.stack import stack_digest
from llmexp.record.installed import installs
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunStatus

LAPTOP = Detected("cpu", "cpu", "", 2, None)
MAKE = "`make serve-venv` installs it into its own environment"
Install = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def _code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that other interpreters import lies in a folder of the test's own."""
    monkeypatch.setattr("llmexp.launch.runtime.snapshot", lambda: snapshot(tmp_path / "code"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """An environment of its own, with nothing in it."""
    venv.create(tmp_path / "own", symlinks=True)
    return tmp_path / "own" / "bin" / "python"


@pytest.fixture
def install(own: Path) -> Install:
    """Put a distribution, and a module of the same name, into the environment."""
    (site,) = own.parent.parent.glob("lib/python*/site-packages")

    def put(name: str, version: str) -> None:
        (site / f"{name}.py").touch()
        information = site / f"{name}-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")

    return put


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a module be missing in the ranks' interpreter, and no other."""

    def lack(lacking: str) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == lacking else name)

    lack("")
    return lack


def serve(*words: str) -> RunPlan:
    return make_plan("task=serve", "hardware=cpu", "model=tiny", *words)


def test_versions_of_the_engine_are_those_of_the_servers_environment(here, own: Path, install: Install) -> None:
    install("vllm", "7.8.9")
    install("torch", "1.2.3")
    plan = serve("engine=vllm", f"engine.python={own}")
    assert preflight(plan, LAPTOP) is None
    found = Runtime(plan).installed.distributions
    assert (found["vllm"], found["torch"]) == ("7.8.9", "1.2.3")
    assert "pydantic" in found, "what the ranks have is named too"


def test_what_the_servers_environment_does_not_have_is_not_taken_from_the_ranks(own: Path, install: Install) -> None:
    install("vllm", "7.8.9")
    assert "torch" not in Runtime(serve("engine=vllm", f"engine.python={own}")).installed.distributions
    assert "torch" in Runtime(serve("engine=transformers")).installed.distributions


def test_another_version_in_the_servers_environment_is_another_stack(tmp_path: Path, own: Path, install) -> None:
    plan = serve("engine=vllm", f"engine.python={own}")
    without = stack_digest(plan)
    copy = tmp_path / "again" / "python"
    copy.parent.mkdir()
    copy.write_text(f'#!/bin/sh\nexec {own} "$@"\n')
    copy.chmod(0o755)
    install("vllm", "7.8.9")
    other = serve("engine=vllm", f"engine.python={copy}")
    assert (other.id, stack_digest(other) == without) == (plan.id, False)


def test_a_server_that_its_environment_lacks_is_a_skip_that_says_how_to_install_it(here, own: Path) -> None:
    ending = preflight(serve("engine=vllm", f"engine.python={own}"), LAPTOP)
    assert ending.status is RunStatus.SKIPPED
    assert ending.reason.startswith(
        f"engine=vllm cannot start its server here, vllm not installed in engine.python={own}: {MAKE}"
    )


def test_a_server_that_the_ranks_interpreter_lacks_is_a_skip_too(here) -> None:
    here("vllm")
    ending = preflight(serve("engine=vllm", "engine.python=null"), LAPTOP)
    assert ending.status is RunStatus.SKIPPED
    assert ending.reason.startswith(f"engine=vllm cannot start its server here, vllm not installed: {MAKE}")


def test_an_interpreter_that_is_not_there_is_a_skip_with_its_path(here) -> None:
    ending = preflight(serve("engine=vllm", "engine.python=/no/such/python"), LAPTOP)
    assert ending.status is RunStatus.SKIPPED
    assert "engine.python=/no/such/python does not start: [Errno 2] No such file or directory" in ending.reason


def test_a_client_library_that_is_missing_is_a_failure_wherever_the_server_is(here, own: Path) -> None:
    here("httptools")
    ending = preflight(serve("engine=vllm", f"engine.python={own}"), LAPTOP)
    assert ending.status is RunStatus.FAILED
    assert "needs httptools: " in ending.reason
    assert installs("serve") in ending.reason


def test_the_ranks_write_the_file_of_llama_cpp_wherever_its_server_is(here, own: Path) -> None:
    here("gguf")
    for python in (own, "null"):
        ending = preflight(serve("engine=llama_cpp", f"engine.python={python}"), LAPTOP)
        assert ending.status is RunStatus.FAILED
        assert "needs gguf: " in ending.reason


def test_doctor_says_that_a_run_without_its_server_would_be_skipped(here) -> None:
    here("vllm")
    found = {finding.what: finding for finding in check_run(serve("engine=vllm", "engine.python=null"), LAPTOP)}
    assert (found["run"].level, found["engine"].level) == ("warn", "ok")
    assert "would be skipped: engine=vllm cannot start its server here" in found["run"].says


def test_engines_that_start_no_server_are_asked_for_none(tiny_plan) -> None:
    assert missing_server(tiny_plan("F")) is None


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that has the images whose names stand in the file."""
    program, images = tmp_path / "bin" / "docker", tmp_path / "images"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ngrep -qx "$3" {images} || {{ echo "Error: No such image: $3" >&2; exit 1; }}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return images


def test_an_image_that_is_not_here_is_a_skip_with_the_command_that_fetches_it(docker: Path) -> None:
    docker.write_text("mine:1\n")
    plan = make_plan("task=serve", "hardware=h100", "engine=tgi")
    image = "ghcr.io/huggingface/text-generation-inference:3.3.7"
    fetched = f"Error: No such image: {image}: `docker pull {image}` fetches its image"
    assert missing_server(plan) == f"engine=tgi cannot start its server here: {fetched}"
    assert missing_server(make_plan("task=serve", "hardware=h100", "engine=tgi", "engine.options.image=mine:1")) is None


def test_a_program_for_containers_that_is_not_here_is_a_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan("task=serve", "hardware=h100", "engine=tgi", "engine.options.program=podman")
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = missing_server(plan)
    assert reason
    assert reason.startswith("engine=tgi cannot start its server here: [Errno 2] No such file or directory: 'podman': ")


def compress(python: Path) -> RunPlan:
    return make_plan("task=compress", "hardware=cpu", "model=organization/name", f"engine.python={python}")


def test_versions_of_both_environments_count_where_ranks_use_such_libraries_too(
    here, own: Path, install: Install
) -> None:
    for name, version in (("llmcompressor", "7.8.9"), ("datasets", "1.0"), ("torch", "1.2.3")):
        install(name, version)
    plan = compress(own)
    assert preflight(plan, LAPTOP) is None
    found = Runtime(plan).installed.distributions
    assert (found["compress: llmcompressor"], found["compress: torch"]) == ("7.8.9", "1.2.3")
    assert found["torch"] not in (None, "1.2.3")


def test_without_llm_compressor_a_run_says_what_makes_its_environment(here, own: Path) -> None:
    said = missing_server(compress(own))
    assert said == (
        f"engine=compress cannot compress here, llmcompressor, datasets not installed in engine.python={own}: "
        "`make compress-venv` installs it into its own environment; or set engine.python to one that has it"
    )
