"""`llmexp advise --html`: the choice, the picture and the table on one page; and what it refuses."""

from __future__ import annotations

import json
import re
import webbrowser
from html import unescape
from pathlib import Path

import pytest

CARD = (
    "model=7b",
    "hardware=rtx4090",
    "hardware.devices_per_node=1",
    "task=finetune",
    "engine=torch",
    "optimizer=adamw",
)


def data(text: str) -> list[dict]:
    """The tables, which the page's script draws."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])


def test_the_page_has_the_choice_the_picture_and_commands_to_copy(llmexp, here: Path) -> None:
    code, out, err = llmexp("advise", *CARD, "precision=bf16_mixed", "--for", "tokens=1e9", "--html", "sent/a.html")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"sent/a\.html: \d+ options, \d+ kB\n", out)
    text = (here / "sent/a.html").read_text()
    assert f"llmexp advise {' '.join(CARD)} precision=bf16_mixed goal=tokens_per_s --for tokens=1e9" in text
    said = unescape(re.search(r'<div class="answer".*?</div>', text, re.DOTALL)[0])
    table, misfits, commands = data(text)
    first = dict(zip(table["headers"], table["rows"][0], strict=True))
    assert f"Best by tokens_per_s: llmexp {' '.join(CARD)} precision=bf16_mixed {first['words']}" in said
    assert (table["copied"], first["#"], first["fits"], first["changes"]) == ("words", "1", "yes", "adapters only")
    assert {"1e9 tokens", "USD", "from", "to"} <= first.keys()
    assert len(table["rows"]) == len(commands["rows"]) == int(re.search(r"(\d+) options", out)[1])
    assert commands["rows"][0][1] == f"python -m llmexp {' '.join(CARD)} precision=bf16_mixed {first['words']}"
    assert misfits["headers"][:2] == ["what is missing", "fits with"]
    for drawn in ('<rect class="beyond"', '<line class="error c1"', "rtx4090: 24.0 GiB", ">1 L+F+C</text>"):
        assert drawn in text
    assert f"words are added to those that all options share: llmexp {' '.join(CARD)} precision=bf16_mixed<" in text


def test_what_may_not_fit_is_hollow_and_after_what_does(llmexp, here: Path) -> None:
    words = ("model=13b", "hardware=a800,h100", "task=finetune", "engine=torch", "method=L+F+Z3+C", "parallelism.tp=1")
    assert llmexp("advise", *words, "--html", "b.html", "--global-batch", "1024")[0] == 0
    text = (here / "b.html").read_text()
    assert "goal=tokens_per_s --global-batch 1024</code>" in text
    table, *_ = data(text)
    fits = table["headers"].index("fits")
    assert [row[fits] for row in table["rows"]] == ["yes", "yes", "uncertain"]
    assert "2 fit, 1 may fit and would be better" in text
    assert text.count('hollow" href') == 2  # in the legend and in the picture


def test_the_page_opens_without_a_name_too(llmexp, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)) or True)
    assert llmexp("advise", *CARD, "method=L+F", "--open")[0] == 0
    assert [address.endswith("/report.html") for address in opened] == [True]
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--html", "."), "--html .: is a folder; name a file in it, such as report.html"),
        (("--html", "a.html", "--json"), "--json prints one object alone: leave --html and --open out"),
        (("--open", "--json"), "--json prints one object alone: leave --html and --open out"),
    ],
)
def test_wrong_flags_are_told_before_anything_is_planned(words, said, llmexp, here: Path, monkeypatch) -> None:
    monkeypatch.setattr("llmexp.cli.commands.advise.advised", lambda *_: pytest.fail("it was planned"))
    code, out, err = llmexp("advise", *CARD, *words)
    assert (code, out, err) == (2, "", f"llmexp: {said}\n")
    assert list(here.iterdir()) == []
