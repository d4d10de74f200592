from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from patience import HANG_S

PACKAGE = Path(__file__).parent / "outside"
Llmexp = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="package")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip put the package into, built from a copy of its sources."""
    root = tmp_path_factory.mktemp("outside")
    source = shutil.copytree(PACKAGE, root / "source", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(root / "site"), str(source)]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return root / "site"


@pytest.fixture
def llmexp(tmp_path: Path) -> Llmexp:
    """Run a command line in an empty folder, with what is installed in `site` beside llmexp."""
    return partial(run_in, tmp_path)


def run_in(folder: Path, site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW")}
    env = kept | {"PYTHONPATH": str(site), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-m", "llmexp", *words], cwd=folder, env=env, capture_output=True, text=True, timeout=HANG_S
    )


@pytest.fixture(scope="package")
def swept_once(installed: Path, tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> tuple[Path, str]:
    """The folder of a sweep of the package's own task over two algorithms, and what it printed."""
    folder = tmp_path_factory.mktemp("swept")
    shutil.copy(empty_store, folder / "mlflow.db")
    tracking = ("tracking.uri=sqlite:///mlflow.db", f"tracking.timeout_s={HANG_S:g}")
    done = run_in(folder, installed, "task=hash", "digest.algorithm=md5,sha256", *tracking)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout
