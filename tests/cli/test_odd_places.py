"""Commands without standard streams, in a folder that is gone, and with words that hold what a terminal obeys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llmexp.record.folder import find_runs

LLMEXP = f"{sys.executable} -m llmexp"
PLAN = "plan method=F model=tiny hardware=cpu"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_command_works_without_standard_streams(tmp_path: Path, closed: str) -> None:
    found = shell(f"{LLMEXP} {PLAN} {closed}", tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert ("tiny" in found.stdout) == (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.ranks
def test_a_run_without_standard_streams_is_measured(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from llmexp import hook\nwhile True: hook.step(tokens=16, loss=1.0)\n")
    program = "engine=script engine.options.command=train.py data.seq_len=16"
    words = f"{program} model=tiny hardware=cpu measure=smoke tracking=none parallelism.dp=1"
    found = shell(f"{LLMEXP} {words} >&- 2>&- <&-", tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    (run,) = find_runs(tmp_path / "outputs")
    assert run.result().status == "success"


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    (gone := tmp_path / "gone").mkdir()
    found = shell(f"rmdir {gone}; {LLMEXP} {PLAN}", gone)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "llmexp: the working directory no longer exists: cd to another one\n"


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "x" * 20_000])
def test_an_error_is_one_line_that_no_terminal_obeys(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-m", "llmexp", f"sweep.name='{name}'", "method=F", "model=tiny"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "\x1b" not in found.stderr
    assert len(found.stderr) < 5000
    assert list(tmp_path.iterdir()) == []


def test_sources_that_hide_the_installed_package_are_named(tmp_path: Path) -> None:
    (tmp_path / "llmexp").symlink_to(Path(__file__).parents[2] / "llmexp")
    # What a plain installation is, seen from the checkout: python -m looks into the working directory first.
    (tmp_path / "plain.py").write_text(
        "import sys\n"
        "sys.meta_path = [finder for finder in sys.meta_path if 'Editable' not in repr(finder)]\n"
        "from llmexp.__main__ import main\n"
        "sys.exit(main(['plan', 'model=tiny']))\n"
    )
    found = shell(f"{sys.executable} plain.py", tmp_path)
    assert found.returncode == 2
    assert "type llmexp in place of python -m llmexp" in found.stderr
    assert found.stderr.count("\n") == 1
