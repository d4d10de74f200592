from __future__ import annotations

from llmexp.paper.printed.serving import statements, statements_on


def figures(*models: str, hardware: str) -> list[str]:
    return [found.figure for found in statements_on(frozenset([hardware]), frozenset(models))]


def test_a_machine_of_the_paper_has_what_the_paper_says_of_it() -> None:
    assert figures("7b", hardware="rtx4090") == ["6", "9", "9"]
    assert figures("13b", hardware="a800") == ["6", "8", "9"]


def test_another_machine_has_what_the_paper_says_of_a800_and_its_name_is_said() -> None:
    assert figures("7b", hardware="h200") == ["6", "7", "9"]
    assert str(statements_on(frozenset(["h200"]), frozenset(["7b"]))[0]).startswith(
        "the paper's figure 6 (7b, 13b, 70b on a800): LightLLM has nearly twice"
    )


def test_of_a_model_that_the_paper_has_not_it_says_nothing() -> None:
    assert figures("tiny", hardware="a800") == []
    assert {found.figure for found in statements()} == {"6", "7", "8", "9"}
