"""llmexp report --figure: the choices of suffix and style, and figures for a paper."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def sweep(make_run) -> str:
    """Two runs that were measured; their folder."""
    for method, speed in (("Naive", 1000.0), ("F", 1500.0)):
        folder = make_run(method, metrics={"tokens_per_s": speed, "training_state_bytes": 1e3 * speed})
    return str(folder.path.parent)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--figure", "x.bmp"), "x.bmp: a picture's name ends in .png, .svg, .pdf"),
        (("--figure", "x"), "x: a picture's name ends in .png, .svg, .pdf"),
        (("--figure", "x.pdf", "--style", "papr"), "invalid choice: 'papr' (choose from"),
        (("--style", "paper"), "--style paper is of --figure FILE, which is missing"),
        (("findings", "--style", "paper"), "--style does not go with llmexp report findings"),
        (("--loss", "low"), "--loss low: must be a finite number of nats above 0, as in --loss 2.31"),
        (("--loss", "-1"), "--loss -1: must be a finite number of nats above 0"),
        (("findings", "--loss", "2"), "--loss does not go with llmexp report findings"),
        (("paper", "--loss", "2"), "--loss does not go with llmexp report paper"),
        (("findings", "--sort", "tokens_per_s"), "--sort does not go with llmexp report findings"),
        (("paper", "--for", "tokens=1e9"), "--for does not go with llmexp report paper"),
    ],
)
def test_a_wrong_word_is_answered_in_one_line_with_the_choices(words, said, sweep, llmexp) -> None:
    code, out, err = llmexp("report", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_figures_for_a_paper_are_named_with_what_their_captions_say(sweep, llmexp, here: Path) -> None:
    code, out, _ = llmexp("report", sweep, "--figure", "x.svg", "--style", "paper")
    lines = [line for line in out.splitlines() if line.startswith(("x.svg", "x_"))]
    assert code == 0
    assert lines[0].startswith("x.svg: tokens/s.")
    assert all((here / line.partition(":")[0]).read_text().startswith("<?xml") for line in lines)
    assert len(lines) == 2


def test_the_reports_own_style_may_be_named(sweep, llmexp, here: Path) -> None:
    assert llmexp("report", sweep, "--figure", "x.png", "--style", "report")[0] == 0
    assert (here / "x.png").stat().st_size > 0
