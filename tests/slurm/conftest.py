from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import HANG_S

from chaos.cluster import Cluster, missing
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import RunResult

SCRIPTED = Path(__file__).parent / "llmexp_scripted"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One for all tests; skipped where the host lacks something, with its name."""
    if lacking := missing():
        pytest.skip(f"a SLURM cluster needs {', '.join(lacking)}: make slurm-test installs it, as root")
    root = Path(tempfile.mkdtemp(prefix="llmexp-slurm-"))  # a socket's path must be short
    with Cluster(root) as running:
        yield running
    shutil.rmtree(root)


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripted engine as an installed package, on the path of drivers and jobs."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(SCRIPTED, site / SCRIPTED.name, ignore=shutil.ignore_patterns("__pycache__"))
    info = site / "llmexp_scripted-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llmexp-scripted\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[llmexp.engines]\nscripted = llmexp_scripted.engine:ENGINE\n[llmexp.conf]\nscripted = llmexp_scripted.conf\n"
    )
    return site


class Shell:
    """A login shell in an empty folder: command lines of llmexp, run to the end or in the background."""

    WORDS = (
        "hydra/launcher=slurm",
        "hardware=cpu",
        "parallelism.dp=1",
        "engine=scripted",
        "measure=smoke",
        "tracking=none",
        "hydra.launcher.poll_s=1",
    )

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder, self.env = folder, env
        self.background: list[subprocess.Popen[str]] = []

    def llmexp(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "llmexp", *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )

    def sweep(self, behaviors: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.llmexp(f"engine.options.behavior={behaviors}", *self.WORDS, *words)

    def start_sweep(self, behaviors: str, *words: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
        return self.start(f"engine.options.behavior={behaviors}", *words, stderr=stderr)

    def start(self, *words: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """In the background, of the runs that the words describe."""
        command = [sys.executable, "-m", "llmexp", *self.WORDS, *words]
        driver = subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
        self.background.append(driver)
        return driver

    @contextmanager
    def sbatch(self, script: str) -> Iterator[None]:
        """Let shell lines stand for sbatch, in which {sbatch} is SLURM's own."""
        path, folder = self.env["PATH"], self.folder / "bin"
        folder.mkdir()
        (folder / "sbatch").write_text(f"#!/bin/sh\n{script.format(sbatch=shutil.which('sbatch'))}\n")
        (folder / "sbatch").chmod(0o755)
        self.env["PATH"] = f"{folder}:{path}"
        yield
        self.env["PATH"] = path

    def run(self, behavior: str) -> RunFolder:
        """The run that behaves so."""
        wanted = f'"behavior": "{behavior}"'
        return next(run for run in find_runs(self.folder / "outputs") if wanted in run.plan_path.read_text())

    def result(self, behavior: str) -> RunResult:
        result = self.run(behavior).result()
        assert result is not None
        return result

    def job(self, behavior: str) -> str:
        from llmexp.slurm.jobs import submissions

        (submitted,) = submissions([self.run(behavior)])
        return submitted.job.number

    def has_job(self, behavior: str) -> bool:
        """Tell whether the run's submission has been noted."""
        try:
            return bool(self.job(behavior))
        except (StopIteration, ValueError):
            return False

    def samples(self, behavior: str) -> bool:
        """Tell whether the run has measured something in this attempt."""
        try:
            return (self.run(behavior).repeat(0) / "samples.0.jsonl").exists()
        except StopIteration:
            return False


@pytest.fixture
def shell(cluster: Cluster, scripted: Path, tmp_path: Path) -> Iterator[Shell]:
    env = {key: value for key, value in cluster.env.items() if not key.startswith("MLFLOW")}
    opened = Shell(tmp_path, env | {"PYTHONPATH": str(scripted), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"})
    yield opened
    for driver in opened.background:
        driver.kill()
        driver.communicate()
    subprocess.run(["scancel", "--user=root"], env=cluster.env, check=False)


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for a condition; fail where it does not come true in time."""

    def wait(condition: Callable[[], object], within_s: float = 600.0) -> None:
        deadline_s = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline_s, "it did not happen in time"
            time.sleep(0.1)

    return wait


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put made-up SLURM commands, and nothing of a real SLURM, on PATH: name=shell line."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(**lines: str) -> None:
        for name, line in lines.items():
            (folder / name).write_text(f"#!{shutil.which('sh', path=os.defpath)}\n{line}\n")
            (folder / name).chmod(0o755)

    return make
