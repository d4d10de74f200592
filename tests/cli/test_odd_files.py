"""Files of a command line that are pipes or devices, or JSON without a bottom: a line before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEEP = "[" * 200_000
PRETRAIN, TUNE = "task=pretrain model=tiny", "task=finetune model=tiny"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a pipe that nobody writes to, models with such files, and JSON that lies too deep."""
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "deep.jsonl").write_text(DEEP)
    for name in ("piped", "deep"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text("{}")
    os.mkfifo(tmp_path / "piped" / "config.json")
    (tmp_path / "deep" / "config.json").write_text(DEEP)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{PRETRAIN} data.files=[pipe]", "pipe is not a regular file"),
        (f"{PRETRAIN} data.files=[/dev/urandom]", "/dev/urandom is not a regular file"),
        (f"{PRETRAIN} data=./pipe", "data=./pipe: instructions are in"),
        (f"{TUNE} data=instructions data.files=[pipe.jsonl]", "pipe.jsonl is not a regular file"),
        (f"{TUNE} data=instructions data.files=[deep.jsonl]", "too deeply"),
        (f"{PRETRAIN} model=./piped model.weights=random", "config.json"),
        (f"{PRETRAIN} model=./deep model.weights=random", "config.json"),
        ("task=serve model=tiny serve.trace.file=pipe.jsonl", "pipe.jsonl is not a regular file"),
        ("task=serve model=tiny serve.trace.file=deep.jsonl", "deep.jsonl"),
        ("task=serve model=tiny serve.texts.path=deep.jsonl serve.texts.tokenizer=bytes", "too deeply"),
    ],
)
def test_odd_files_are_refused_in_a_line_at_once(here: Path, words: str, said: str) -> None:
    command = [sys.executable, "-m", "llmexp", "plan", "hardware=cpu", *words.split()]
    found = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (2, ""), found.stderr[-2000:]
    lines = found.stderr.splitlines()
    assert said in lines[-1]
    assert all(line.startswith("llmexp: ") for line in lines)
