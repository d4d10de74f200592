from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.sweep.ab.side import Side, importable, opened

HERE = Path(__file__).parents[3]


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", "-C", str(folder), *named, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository of another project, with two commits of one module."""
    folder = tmp_path / "project"
    (folder / "runs").mkdir(parents=True)
    git(folder, "init", "--quiet")
    for value in (1, 2):
        (folder / "mine.py").write_text(f"VALUE = {value}\n")
        (folder / "runs" / "kept").write_text("")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", f"{value}")
    monkeypatch.chdir(folder)
    return folder


def imported(side: Side, words: str) -> str:
    """What a Python of the side prints, started in its folder as its llmexp is."""
    return subprocess.run(
        [side.python, "-c", words], cwd=side.folder, env=side.environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_llmexp_is_imported_from_its_side_also_where_the_working_directory_is_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = importable(HERE, tmp_path / "side")
    monkeypatch.chdir(HERE)
    side = Side("one", sys.executable, variables={"PYTHONPATH": str(path)})
    said = imported(side, "import llmexp, llmexp.conf; print(llmexp.__path__, llmexp.conf.__path__)")
    assert said == f"{[str(path / 'llmexp')]} {[str(path / 'llmexp' / 'conf')]}"


def test_a_commit_of_another_project_is_beside_the_working_tree_and_then_gone(project: Path, tmp_path: Path) -> None:
    with opened("HEAD~1", tmp_path / "a") as side:
        assert imported(side, "import mine; print(mine.VALUE)") == "1"
        assert str(tmp_path / "a") in git(project, "worktree", "list")
    assert str(tmp_path / "a") not in git(project, "worktree", "list")
    assert not (tmp_path / "a" / "checkout").exists()


def test_a_commit_is_run_in_the_folder_that_the_command_was_typed_in(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "runs")
    with opened("HEAD", tmp_path / "a") as side:
        assert side.folder == tmp_path / "a" / "checkout" / "runs"


def test_a_checkout_is_taken_with_its_changes_which_make_it_another_side(project: Path, tmp_path: Path) -> None:
    with opened(".", tmp_path / "a") as side:
        assert imported(side, "import mine; print(mine.VALUE)") == "2"
        before = side.identity
    # Of another length: Python takes a source of the same second and size for the one that it compiled.
    (project / "mine.py").write_text("VALUE = 30\n")
    with opened(".", tmp_path / "b") as side:
        assert imported(side, "import mine; print(mine.VALUE)") == "30"
        assert side.identity != before


def test_an_environment_is_its_own_python_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    python = tmp_path / "env" / "bin" / "python"
    python.symlink_to(sys.executable)
    for named in (python.parents[1], python):
        with opened(str(named), tmp_path / "a") as side:
            assert side.python == str(python)


def test_overrides_are_a_side_of_the_present_environment(tmp_path: Path) -> None:
    with opened("engine=torch precision=bf16", tmp_path / "a") as side:
        assert (side.words, side.python) == (("engine=torch", "precision=bf16"), sys.executable)


@pytest.mark.parametrize(
    ("text", "said"),
    [("HEAD~9", "has no such commit"), ("nothing", "no such commit, and there is no such path: a side is a commit")],
)
def test_what_is_no_side_is_named_with_the_kinds_that_there_are(
    project: Path, tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said), opened(text, tmp_path / "a"):
        pass


def test_a_folder_that_is_neither_checkout_nor_environment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="neither an environment"), opened(str(tmp_path / "empty"), tmp_path / "a"):
        pass


def test_a_side_without_llmexp_says_so(tmp_path: Path) -> None:
    side = Side("bare", sys.executable, variables={"PYTHONPATH": str(tmp_path)})
    (tmp_path / "llmexp.py").write_text("raise SystemExit('no llmexp here')")
    with pytest.raises(ConfigError, match="bare cannot run this: no llmexp here"):
        side.check(["method=Naive"])
