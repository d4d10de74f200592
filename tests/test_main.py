from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
from patience import HANG_S

BIN = Path(sys.executable).parent
SCRIPT = (
    f'export PATH={BIN}:$PATH; eval "$(llmexp -sc install=bash)"; '
    'COMP_LINE="$LINE"; COMP_WORDS=($LINE); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))'
)


def test_module_from_any_folder(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", "+methd=F", "-m"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("llmexp: unknown key 'methd'")


def test_console_script_from_any_folder(tmp_path: Path):
    done = subprocess.run(
        [BIN / "llmexp", "method=R+F", "--cfg", "job", "--package", "method"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "R+F\n", "")


def test_info_is_hydras_own(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", "model=7b", "--info", "defaults-tree"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "model: 7b" in done.stdout


def test_a_closed_pipe_is_no_traceback(tmp_path: Path):
    command = f"set -o pipefail; {BIN}/llmexp plan experiment=paper_table03 hardware=a800 | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith(" #  model  method")
    # On a busy machine the planning takes so long that it is counted.
    assert [line for line in done.stderr.splitlines() if not line.startswith("llmexp: planning run ")] == []


def test_a_command_ends_without_a_last_collection_of_all_that_it_imported(tmp_path: Path):
    # What is registered first is called last, with what main() registered behind it.
    script = (
        "import atexit, gc, sys; atexit.register(lambda: print(len(gc.get_objects()), gc.get_freeze_count())); "
        "sys.argv = ['llmexp', 'plan', 'method=F', 'model=tiny']; from llmexp.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    left, frozen = map(int, done.stdout.splitlines()[-1].split())
    assert frozen > 100 * left


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path):
    for library in ("psutil", "pydantic", "hydra", "yaml", "typing_extensions"):
        (tmp_path / f"{library}.py").write_text("open('ran', 'w')")
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", "plan", "method=F", "model=tiny"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "ran").exists()


def test_a_locale_that_cannot_write_what_is_said_is_none(tmp_path: Path):
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "llmexp", "plan", "method=F", "model=tiny", "model.name='größe'"]
    done = subprocess.run(words, cwd=tmp_path, env=os.environ | ascii_only, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "größe F on " in done.stdout.decode()


def test_a_containers_first_process_ends_at_sigterm(tmp_path: Path, namespace: list[str]):
    node = ["hardware.nodes=2", "hardware.devices_per_node=1", "node.rank=1", "node.address=127.0.0.1", "node.port=9"]
    words = [*namespace, sys.executable, "-m", "llmexp", "method=Naive", "model=tiny", "hardware=cpu", *node]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr
        assert any("waits for node 0" in line for line in started.stderr)
        psutil.Process(started.pid).children()[0].terminate()
        try:
            assert started.wait(timeout=HANG_S) == 130
        finally:
            started.kill()


def complete(line: str, folder: Path) -> list[str]:
    script = f'{SCRIPT}; hydra_bash_completion; echo "${{COMPREPLY[*]}}"'
    env = {**os.environ, "LINE": line}
    return subprocess.run(
        ["bash", "-c", script], env=env, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split()


def test_bash_completes_groups_options_and_keys(tmp_path: Path):
    assert "model=" in complete("llmexp mod", tmp_path)
    assert complete("llmexp hardware=rtx", tmp_path) == [
        "hardware=rtx2080ti",
        "hardware=rtx3080",
        "hardware=rtx3090",
        "hardware=rtx3090_nvlink",
        "hardware=rtx4070ti_super",
        "hardware=rtx4090",
        "hardware=rtx5070ti",
        "hardware=rtx5080",
        "hardware=rtx5090",
        "hardware=rtx6000ada",
        "hardware=rtxpro6000",
    ]
    assert complete("llmexp plan meth", tmp_path) == ["method="]
