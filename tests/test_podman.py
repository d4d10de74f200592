"""Ranks in real containers, by Podman, whose image is this host's own programs and libraries.

They measure, and end with their driver.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from patience import until

from llmexp.record.folder import RunFolder, find_runs

pytestmark = [pytest.mark.sweep, pytest.mark.ranks]
ROOT = Path(__file__).parents[1]
LINKS = ("bin", "sbin", "lib", "lib64")
EMPTY = ("usr", "etc", "tmp", "proc", "sys", "dev", "run", "var")
RUN = [
    "engine=torch",
    "hardware=cpu",
    "model=tiny",
    "model.num_layers=1",
    "data=synthetic",
    "data.seq_len=32",
    "measure=smoke",
    "tracking=none",
]


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if not shutil.which("podman"):
        pytest.skip("there is no podman")
    name, archive = f"llmexp-test-{os.getpid()}", io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for folder in EMPTY:
            tar.addfile(_entry(folder, tarfile.DIRTYPE))
        for link in LINKS:
            entry = _entry(link, tarfile.SYMTYPE)
            entry.linkname = f"usr/{link}"
            tar.addfile(entry)
    subprocess.run(["podman", "import", "-", name], input=archive.getvalue(), capture_output=True, check=True)
    try:
        tried = subprocess.run(
            ["podman", "run", "--rm", "--volume", "/usr:/usr:ro", name, "true"], capture_output=True, text=True
        )
        if tried.returncode:
            pytest.skip(f"podman starts no container here: {tried.stderr.strip()}")
        yield name
    finally:
        subprocess.run(["podman", "rmi", "--force", name], capture_output=True)


def _entry(name: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, 0o755
    return entry


@pytest.fixture
def command(image: str, tmp_path: Path) -> list[str]:
    shown = dict.fromkeys(
        ("/usr", str(ROOT), sys.prefix, sys.base_prefix, *(path for path in sys.path if path.endswith("site-packages")))
    )
    options = [word for folder in shown for word in ("--volume", f"{folder}:{folder}:ro")]
    runtime = [
        "runtime=docker",
        "runtime.program=podman",
        f"runtime.image={image}",
        f"runtime.python={sys.executable}",
        f"runtime.options={options}",
    ]
    return [sys.executable, "-m", "llmexp", *RUN, *runtime, f"sweep.outputs={tmp_path}"]


def test_ranks_in_a_container_measure(command: list[str], tmp_path: Path) -> None:
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = find_runs(tmp_path)
    assert folder.state() == "success"
    assert running() == []


def test_a_container_ends_where_driver_and_supervisor_are_killed_at_once(command: list[str], tmp_path: Path) -> None:
    driver = psutil.Popen(
        [*command, "measure.steps=100000"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: [*tmp_path.glob("*/*/repeat.0/samples.0.jsonl")])
    (container,) = running()
    supervisor = next(child for child in driver.children() if "llmexp.launch.supervisor" in child.cmdline())
    driver.suspend()
    supervisor.kill()
    driver.kill()
    driver.wait()
    until(lambda: container not in running())
    (folder,) = tmp_path.glob("*/*/repeat.0")
    assert RunFolder(folder.parent).state() == "killed"
    assert "the driver of this run is gone" in (folder / "log.0.txt").read_text()


def running() -> list[str]:
    said = subprocess.check_output(["podman", "ps", "--format", "{{.Names}}"], text=True)
    return [name for name in said.splitlines() if name.startswith("llmexp-")]
