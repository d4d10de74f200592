import pytest

from llmexp.errors import ConfigError
from llmexp.paper.claims.rows import paper_rows
from llmexp.report.findings.claims import own_claims

CODES = ("F", "R", "Z2", "Z3", "O", "Q", "L", "QL")
GOOD = "id: mine, statement: F helps, shape: ratio, metric: tokens_per_s, compare: {add: F}, holds: [1.02, null]"


@pytest.fixture
def read(tmp_path):
    def from_text(text: str):
        (tmp_path / "mine.yaml").write_text(text)
        return own_claims(tmp_path / "mine.yaml", CODES, paper_rows())

    return from_text


def test_one_row_is_a_claim_and_is_decided_on_the_papers_cells_too(read) -> None:
    [claim] = read(f"{{{GOOD}}}")
    answer = claim.answer(paper_rows())
    assert (answer.verdict, claim.id, claim.statement) == ("holds", "mine", "F helps")
    [stricter] = read(f"- {{{GOOD.replace('1.02', '1.5')}}}")
    assert stricter.answer(paper_rows()).verdict == "fails"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            GOOD.replace("ratio", "ration"),
            ["claim mine", "ratio, share, best, oom, fits, value, growth, ranks, formula"],
        ),
        (
            GOOD.replace("metric: tokens_per_s", "metric: speed"),
            ["metric", "'tokens_per_s', 'memory_gb', 'batch', "],
        ),
        (GOOD.replace("add: F", "add: X"), ["unknown atom 'X'", "F, R, Z2"]),
        (GOOD.replace("{add: F}", "{add: F, swap: [Z3, Z2]}"), ["compare has one of"]),
        (GOOD.replace("{add: F}", "{}"), ["compare has one of"]),
        (GOOD.replace("{add: F}", "{field: hardware}"), ["compare has one of"]),
        (GOOD.replace("holds", "hold"), ["holds: field required"]),
        (GOOD + ", where: {modle: 7B}", ["unknown key where.modle"]),
        (GOOD + ", where: {without: [Z9]}", ["unknown atom 'Z9'"]),
        (GOOD + ", rule: some", ["rule"]),
        (GOOD.replace("[1.02, null]", "fast"), ["holds"]),
        (GOOD.replace("id: mine, ", ""), ["a claim is a row with id, statement and shape"]),
        (GOOD.replace("statement: F helps, ", ""), ["statement: field required"]),
        ("id: f, statement: s, shape: formula, holds: [1, 2], formula: '[V nothing]'", ["no figure [V nothing]"]),
        ("id: f, statement: s, shape: formula, holds: [1, 2], formula: '1 +'", ["not arithmetic"]),
        ("id: f, statement: s, shape: formula, holds: [1, 2], formula: 'open(1)'", ["figures in brackets, numbers"]),
        ("id: f, statement: s, shape: formula, holds: [1, 2], formula: '1 / 0'", ["division by zero"]),
        ("id: [", ["not YAML"]),
    ],
)
def test_a_wrong_row_is_one_line_with_what_can_stand_there(read, row, words) -> None:
    with pytest.raises(ConfigError) as raised:
        read(f"- {{{row}}}")
    assert "\n" not in str(raised.value)
    assert "mine.yaml" in str(raised.value)
    for word in words:
        assert word in str(raised.value)


def test_an_id_stands_once(read) -> None:
    with pytest.raises(ConfigError, match="the id mine occurs twice"):
        read(f"- {{{GOOD}}}\n- {{{GOOD}}}")


def test_a_file_that_is_missing_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: No such file"):
        own_claims(tmp_path / "none.yaml", CODES, ())
