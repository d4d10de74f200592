from pathlib import Path

import pytest

OWN = (
    "{id: mine, statement: F helps, shape: ratio, metric: tokens_per_s, compare: {add: F}, where: {hardware: cpu}, "
    "holds: [1.02, null]}"
)


def test_without_runs_the_papers_cells_are_decided(llmexp, here: Path):
    code, out, _ = llmexp("report", "findings")
    assert code == 0
    assert "112 claims; on the paper's cells: holds 48, partly 17, fails 15, cannot tell 32" in out


def test_claims_are_decided_on_the_runs_of_a_folder(llmexp, here: Path, make_run):
    folder = make_run("Naive", metrics={"tokens_per_s": 1.0}).path.parent
    Path("mine.yaml").write_text(OWN)
    code, out, _ = llmexp("report", "findings", str(folder), "--claims", "mine.yaml", "--format", "csv")
    assert code == 0
    assert out.splitlines()[1].startswith("mine,F helps,cannot tell,no pair to compare by tokens_per_s,")
    assert llmexp("report", "findings", str(folder), "--format", "markdown")[1].startswith("### 112 claims")


def test_a_folder_of_that_name_is_reached_with_its_dot(llmexp, here: Path, make_run):
    run = make_run("Naive", metrics={"tokens_per_s": 1.0}).path
    (here / "findings").symlink_to(run.parent)
    assert "method=Naive" in llmexp("report", "./findings")[1]
    assert "112 claims" in llmexp("report", "findings")[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("findings", "--into", "x"), "--into does not go with llmexp report findings"),
        (("findings", "none"), "none does not exist, nor does outputs/none"),
        (("findings", "--claims", "none.yaml"), "none.yaml: No such file"),
        (("--claims", "none.yaml"), "is of llmexp report findings"),
    ],
)
def test_wrong_words_are_one_line(llmexp, here: Path, words, expected):
    code, _, error = llmexp("report", *words)
    assert (code, expected in error, error.count("\n")) == (2, True, 1)
