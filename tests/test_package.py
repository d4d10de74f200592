"""What a wheel holds, against the folders that it is made of; and the places that say llmexp's version and license."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from patience import HANG_S

import llmexp

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS: dict[str, str] = SETUPTOOLS["package-dir"]
NOT_PACKAGED = {"tests", "benchmarks", "chaos", "docs"}
BUILT_FROM = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "constraints.txt", *FOLDERS.values())


def files(folder: Path) -> Iterator[Path]:
    """All files below a folder but those that Python, editors and pip leave."""
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(
            part.startswith(".") or part == "__pycache__" or part.endswith(".egg-info") for part in parts
        ):
            yield path


def as_imported() -> dict[str, Path]:
    """Every file by the place that a wheel gives it."""
    return {
        f"{name.replace('.', '/')}/{path.relative_to(ROOT / folder).as_posix()}": path
        for name, folder in FOLDERS.items()
        for path in files(ROOT / folder)
    }


def test_every_folder_with_files_is_a_package() -> None:
    packages = set(runpy.run_path(str(ROOT / "setup.py"))["packages"]())
    assert {Path(place).parent.as_posix().replace("/", ".") for place in as_imported()} <= packages
    assert "llmexp.launchers" in packages
    assert "llmexp.conf.hydra.help" in packages
    assert "hydra_plugins" not in packages, "an editable install would take it for llmexp's own"


def test_every_file_is_python_or_of_a_kind_that_is_packaged() -> None:
    kinds = ["*.py", *SETUPTOOLS["package-data"]["*"]]
    assert [place for place, path in as_imported().items() if not any(fnmatch(path.name, kind) for kind in kinds)] == []


def test_every_folder_with_python_or_conf_is_packaged_or_known_not_to_be() -> None:
    with_code = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith(".") and (path / "__init__.py").is_file()
    }
    assert with_code - NOT_PACKAGED <= set(FOLDERS.values())


def built(kind: str, source: Path, into: Path) -> Path:
    """What setuptools makes of sources, called as pip and build call it."""
    asked = f"from setuptools.build_meta import build_{kind}; print('', build_{kind}({str(into)!r}), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=source, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return into / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the wheel that is made from what an sdist holds."""
    root = tmp_path_factory.mktemp("package")
    source, into = root / "source", root / "built"
    source.mkdir()
    into.mkdir()
    for name in BUILT_FROM:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, source / name)
    subprocess.run(["tar", "-xf", built("sdist", source, into), "-C", root], check=True)
    (unpacked,) = root.glob("llmexp-*")
    with ZipFile(built("wheel", unpacked, into)) as found:
        return {name: found.read(name) for name in found.namelist()}


def test_a_wheel_has_every_file_as_it_is_in_the_checkout_and_no_other(wheel: dict[str, bytes]) -> None:
    held = {name: content for name, content in wheel.items() if ".dist-info/" not in name}
    assert held == {place: path.read_bytes() for place, path in as_imported().items()}


def test_a_wheel_carries_the_license_and_starts_llmexp(wheel: dict[str, bytes]) -> None:
    told = {Path(name).name: content.decode() for name, content in wheel.items() if ".dist-info/" in name}
    assert told["LICENSE"] == (ROOT / "LICENSE").read_text()
    assert "\nLicense-Expression: Apache-2.0\n" in told["METADATA"]
    assert "llmexp = llmexp.__main__:main" in told["entry_points.txt"]


def test_version_and_license_are_the_same_wherever_they_are_said() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {llmexp.__version__, PROJECT["project"]["version"], cited["version"]} == {cited["version"]}
    assert PROJECT["project"]["license"] == cited["license"]
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_a_commit_is_checked_by_make_lint_and_a_push_by_ci_run() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for repo in hooks for hook in repo["hooks"]] == ["make lint"]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert all(re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in steps if "uses" in step)
    assert all(job["timeout-minutes"] for job in jobs)


def other_pythons() -> list[Any]:
    """The interpreters of other versions here that the project says it takes."""
    newest = int(PROJECT["project"]["requires-python"].rpartition("<3.")[2]) - 1
    names = [f"python3.{minor}" for minor in range(11, newest + 1) if minor != sys.version_info.minor]
    works = [name for name in names if shutil.which(name) and not subprocess.run([name, "-c", ""]).returncode]
    return works or [pytest.param("none", marks=pytest.mark.skip(reason="there is no other Python here"))]


@pytest.mark.sweep
@pytest.mark.parametrize("python", other_pythons())
def test_what_needs_no_torch_is_installed_and_runs_on_every_python(python: str, tmp_path: Path) -> None:
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    programs = tmp_path / "venv" / "bin"
    subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", "--no-compile", ROOT], check=True)

    def said(*words: str) -> str:
        return subprocess.run(
            [programs / "llmexp", *words], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=HANG_S
        ).stdout

    assert "\n1  7b     Naive" in said("plan", "model=7b", "hardware=h100", "method=Naive,F")
    assert "112 claims" in said("report", "findings")
    assert "deepspeed" in said("engines")
    assert "torch" not in subprocess.run([programs / "pip", "list"], capture_output=True, text=True, check=True).stdout


def test_make_lets_python_keep_bytecode_where_the_shell_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    tell = "tell: ; @echo told=$$PYTHONDONTWRITEBYTECODE."
    assert "told=.\n" in subprocess.check_output(["make", "--eval", tell, "tell"], cwd=ROOT, text=True)
