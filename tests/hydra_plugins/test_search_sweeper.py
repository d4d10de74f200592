from __future__ import annotations

from pathlib import Path

import pytest
from made_up_trials import MadeUpRuns

from llmexp.__main__ import main
from llmexp.sweep.search import searching

WORDS = ("model=tiny", "hardware=cpu", "measure=quick", "tracking=none", "engine=torch", "batch.micro=1,2,4")


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpRuns:
    made_up = MadeUpRuns(tmp_path / "notes")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(searching, "measure", made_up.measure)
    monkeypatch.setattr(searching, "leave_report", lambda *_: None)
    return made_up


def test_hydras_word_for_a_sweeper_searches_with_the_same_study_as_the_command(
    runs: MadeUpRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, "hydra/sweeper=search", "hydra.sweeper.maximize=tokens_per_s", "hydra.sweeper.trials=2"]) == 0
    assert len(runs.begun) == 2
    assert main(["search", *WORDS, "--maximize", "tokens_per_s", "--trials", "3"]) == 0
    assert len(set(runs.begun)) == len(runs.begun) == 3
    assert "best is trial " in capsys.readouterr().out


def test_what_the_sweeper_lacks_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "hydra/sweeper=search"]) == 2
    assert capsys.readouterr().err == (
        "llmexp: name what is sought: minimize=loss or maximize=tokens_per_s (llmexp search: --minimize loss)\n"
    )
