from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llmexp.launch import code

WHERE = (
    "import llmexp, llmexp.launchers.rank as rank, llmexp.conf; "
    "print(llmexp.__file__, rank.__file__, llmexp.conf.__path__[0])"
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(code, "snapshot", code.snapshot.__wrapped__)


def test_an_interpreter_that_has_only_the_copy_imports_all_of_it_from_there(tmp_path: Path):
    folder = code.snapshot()
    path = ":".join([str(folder), *(entry for entry in sys.path if entry.endswith("site-packages"))])
    done = subprocess.run(
        [sys.executable, "-S", "-c", WHERE],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert [Path(place).is_relative_to(folder) for place in done.stdout.split()] == [True] * 3


def test_the_same_sources_are_the_same_folder_and_others_are_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    first = code.snapshot()
    assert code.snapshot() == first
    (tmp_path / "more.py").write_text("a = 1")
    sources = list(code._sources())
    monkeypatch.setattr(code, "_sources", lambda: iter([*sources, ("llmexp/more.py", tmp_path / "more.py")]))
    second = code.snapshot()
    assert second != first
    assert (second / "llmexp" / "more.py").read_text() == "a = 1"
    assert not (first / "llmexp" / "more.py").exists()


def test_nothing_half_written_is_left(tmp_path: Path):
    folder = code.snapshot()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
