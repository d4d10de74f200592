"""`make serve-venv` and `make compress-venv`, as far as they go without an installation."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from llmexp.cli.resolvers import server_python

ROOT = Path(__file__).parents[1]


@pytest.fixture
def without_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text("#!/bin/sh\nexit 9\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(driver.parent), os.environ["PATH"]]))


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
