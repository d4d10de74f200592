"""llmexp report writes the page, opens it, and prints LaTeX and the set-up."""

from __future__ import annotations

import webbrowser
from pathlib import Path


def test_the_page_is_written_where_asked_and_opened(llmexp, runner, here: Path, monkeypatch) -> None:
    llmexp("method=Naive,F", "model=tiny", "hardware=cpu", "tracking=none")
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)) or True)
    code, out, _ = llmexp("report", "--html", "sent/a.html")
    assert (code, opened) == (0, [])
    assert out.startswith("sent/a.html: 2 runs, ")
    assert (here / "sent/a.html").read_text().startswith("<!doctype html>")
    assert llmexp("report", "--html", "sent/a.html", "--open")[0] == 0
    assert opened == [(here / "sent/a.html").as_uri()]


def test_a_folder_is_no_page(llmexp, runner, here: Path) -> None:
    llmexp("method=F", "model=tiny", "hardware=cpu", "tracking=none")
    code, _, err = llmexp("report", "--html", "outputs")
    assert code == 2
    assert "--html outputs: is a folder; name a file in it, such as outputs/report.html" in err


def test_latex_is_printed(llmexp, runner, here: Path) -> None:
    llmexp("method=F", "model=tiny", "hardware=cpu", "tracking=none")
    code, out, _ = llmexp("report", "--format", "latex")
    assert code == 0
    assert r"\toprule" in out
