import os
from pathlib import Path

import pytest

from llmexp.record.folder import find_runs
from llmexp.record.paths import RealPaths, folders_in, is_there, names_in


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b/run", "a/run", "a/.hidden"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "linked").symlink_to("a")
    return tmp_path


def test_folders_come_by_name_with_links_to_folders(tree: Path) -> None:
    assert folders_in(str(tree)) == [str(tree / name) for name in ("a", "b", "linked")]
    assert folders_in(str(tree / "a")) == [str(tree / "a" / name) for name in (".hidden", "run")]


def test_what_is_no_folder_has_no_names(tree: Path) -> None:
    assert folders_in(str(tree / "file")) == names_in(str(tree / "file")) == names_in(str(tree / "none")) == []
    assert sorted(names_in(str(tree / "a"))) == [".hidden", "run"]


@pytest.mark.parametrize("name", ["a", "file", "linked", "gone", "loop", "none", "file/below"])
def test_what_is_there_is_what_pathlib_says(tree: Path, name: str) -> None:
    assert is_there(str(tree / name)) == (tree / name).exists()


@pytest.mark.parametrize("name", ["a/run", "linked/run", "linked", "gone", "file", "a/../b", "a/.", "none/below"])
def test_a_real_path_is_what_pathlib_says(tree: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RealPaths()
    monkeypatch.chdir(tree)
    for path in (tree / name, Path(name)):
        assert real.of(path) == real.of(path) == str(path.resolve())
    assert real.of(Path(".")) == os.path.realpath(tree)


def test_runs_are_found_in_the_order_of_their_paths(tmp_path: Path) -> None:
    names = ["one", "sweep/a", "sweep/b", "z-sweep/a", "previous/old", "sweep/a/previous/old", "deep/er/run"]
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "plan.json").write_text("{}")
    found = [str(run.path.relative_to(tmp_path)) for run in find_runs(tmp_path)]
    assert found == ["one", "sweep/a", "sweep/b", "z-sweep/a"]
    assert [run.path.name for run in find_runs(tmp_path / "deep" / "er")] == ["run"]
    assert find_runs(tmp_path / "previous") == find_runs(tmp_path / "none") == []
