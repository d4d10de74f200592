"""`make serve-venv` and `make compress-venv`, as far as they go without an installation."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from llmexp.cli.resolvers import server_python
from llmexp.launchers.serving.engines.tgi import IMAGE

ROOT = Path(__file__).parents[1]


def program(path: Path, body: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def without_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin" / "nvidia-smi", "exit 9")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]]))


@pytest.fixture
def with_gpu(without_gpu: None, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "nvidia-smi", "exit 0")


def make(tmp_path: Path, flags: str, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: fpu sse2 {flags}\n")
    places = [f"SERVERS={tmp_path}/servers", f"VENV={tmp_path}/venv", f"CPUINFO={tmp_path}/cpuinfo"]
    return subprocess.run(
        ["make", "--no-print-directory", *words, *places], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.usefixtures("without_gpu")
def test_a_processor_that_vllm_cannot_compute_with_is_said_in_one_line_before_anything_is_made(tmp_path: Path) -> None:
    made = make(tmp_path, "avx", "serve-venv")
    assert made.returncode == 2
    assert made.stderr.startswith("vLLM needs an NVIDIA GPU, or a processor with AVX-512 or AVX2, and there is none")
    assert not list(tmp_path.glob("servers")) + list(tmp_path.glob("venv"))


@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize("flags", ["avx avx2", "avx512f"])
def test_a_processor_that_vllm_can_compute_with_is_let_through(tmp_path: Path, flags: str) -> None:
    assert make(tmp_path, flags, ".runs-vllm").returncode == 0


@pytest.mark.parametrize("target", ["serve-venv", "compress-venv"])
def test_nothing_is_installed_without_hashes_where_they_are_asked_for(tmp_path: Path, target: str) -> None:
    made = make(tmp_path, "avx2", target, "LOCKED=1")
    assert made.returncode == 2
    assert f"there are no hashes for make {target}" in made.stderr


def test_llm_compressor_is_installed_with_what_reads_its_models_and_found_by_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("LLMEXP_COMPRESS_PYTHON", raising=False)
    words = ["make", "--no-print-directory", "--dry-run", "compress-venv", f"VENV={tmp_path}/venv"]
    recipe = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    python = tmp_path / "llmexp" / "servers" / "compress" / "bin" / "python"
    assert f"{python} -m pip install" in recipe
    assert "--editable '.[train,compress]'" in recipe
    python.parent.mkdir(parents=True)
    python.touch()
    assert server_python("compress") == str(python)


@pytest.mark.usefixtures("without_gpu")
def test_llama_cpp_asks_for_a_compiler_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("make", "sh", "bash", "sed", "uname", "env"):
        found = shutil.which(program)
        assert found
        (tmp_path / "bin" / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / ".python").touch()
    made = make(tmp_path, "avx2", "serve-venv", "SERVER=llama_cpp")
    assert made.returncode == 2
    assert made.stderr.startswith("llama.cpp is compiled here, and there is no cmake in PATH")
    assert not (tmp_path / "servers").exists()


def test_tgi_is_an_image_whose_name_is_said_in_one_line(tmp_path: Path) -> None:
    made = make(tmp_path, "avx2", "serve-venv", "SERVER=tgi")
    assert made.returncode == 2
    assert f"text-generation-inference has no package, its server is an image: docker pull {IMAGE}," in made.stderr
    assert not (tmp_path / "servers").exists()


def test_another_server_is_told_which_there_are(tmp_path: Path) -> None:
    made = make(tmp_path, "avx2", "serve-venv", "SERVER=sglang")
    assert made.returncode == 2
    assert made.stderr.startswith(
        "SERVER=sglang: make serve-venv makes environments for vllm, llama_cpp and lightllm\n"
    )


@pytest.mark.usefixtures("without_gpu")
def test_lightllm_asks_for_a_gpu_before_anything_is_made(tmp_path: Path) -> None:
    made = make(tmp_path, "avx2", "serve-venv", "SERVER=lightllm")
    assert made.returncode == 2
    assert made.stderr.startswith("LightLLM needs an NVIDIA GPU, and there is none here")
    assert not (tmp_path / "servers").exists()


@pytest.mark.usefixtures("with_gpu")
def test_lightllm_asks_for_its_python_before_anything_is_made(tmp_path: Path) -> None:
    made = make(tmp_path, "avx2", "serve-venv", "SERVER=lightllm", "LIGHTLLM_PYTHON=python3.9000")
    assert made.returncode == 2
    assert "there is no python3.9000 in PATH: install it, or name it with LIGHTLLM_PYTHON=" in made.stderr
    assert not (tmp_path / "servers").exists()


@pytest.mark.usefixtures("with_gpu")
def test_lightllm_comes_from_a_commit_of_a_source_that_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python and uv stand in here; git and the order of the steps are what users have."""
    source, said = tmp_path / "source", tmp_path / "said"
    source.mkdir()
    for step in ("init --quiet", "commit --quiet --allow-empty -m first", "commit --quiet --allow-empty -m later"):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *step.split()], cwd=source, check=True)
    first = subprocess.run(["git", "rev-parse", "HEAD~"], cwd=source, capture_output=True, text=True, check=True).stdout
    interpreter = tmp_path / "servers" / "lightllm" / "bin" / "python"
    places = (interpreter, interpreter.parents[1] / "uv" / "bin" / "uv")
    copies = "; ".join(f'mkdir -p {place.parent}; cp "$0" {place}' for place in places)
    program(tmp_path / "bin" / "python3.9", f'[ "$2" = venv ] && {{ {copies}; }}; echo "$@" >>{said}')
    words = ["SERVER=lightllm", f"LIGHTLLM_SOURCE={source}", f"LIGHTLLM_COMMIT={first.strip()}"]
    made = make(tmp_path, "avx2", "serve-venv", *words)
    assert made.returncode == 0, made.stderr
    cloned = interpreter.parents[1] / "source"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=cloned, capture_output=True, text=True, check=True).stdout
    assert head == first
    steps = said.read_text()
    order = [
        "venv --clear",
        f"--requirement {cloned}/requirements.txt",
        "--no-deps",
        "import lightllm.server.api_server",
    ]
    assert sorted(order, key=steps.index) == order
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "data" / "llmexp").mkdir(parents=True)
    (tmp_path / "servers").rename(tmp_path / "data" / "llmexp" / "servers")
    assert server_python("lightllm") == str(tmp_path / "data" / "llmexp" / "servers" / "lightllm" / "bin" / "python")
