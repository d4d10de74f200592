"""The question whether servers did the same work."""

from __future__ import annotations

from pathlib import Path

from served_requests import answer, served_row, serving_plan

from llmexp.report.row import Row
from llmexp.serving.report.same_work import same_work_lines

WORDS = ("serve.rate=max", "serve.requests=2")


def engine_of(row: Row) -> str:
    return row.plan.config.engine.name


def lines(*rows: Row) -> list[str]:
    return list(same_work_lines(rows, engine_of))


def test_equal_tokens_are_the_same_work(tmp_path: Path) -> None:
    rows = [
        served_row(tmp_path / engine, serving_plan(*WORDS, f"engine={engine}"), answer(0), answer(1))
        for engine in ("transformers", "llama_cpp")
    ]
    assert lines(*rows) == ["same work: llama_cpp and transformers: all 2 outputs are equal, token by token"]


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    other = answer(1, token_ids=[0, 1, 7, 3])
    rows = [
        served_row(tmp_path / "a", serving_plan(*WORDS), answer(0), answer(1)),
        served_row(tmp_path / "b", serving_plan(*WORDS, "engine=vllm"), answer(0), other),
    ]
    (line,) = lines(*rows)
    assert line.endswith(
        "1 of 2 outputs are equal, token by token; the first difference is token 3 of request 1 at load point 1: "
        "2 there, 7 here"
    )


def test_drawn_tokens_cannot_be_compared(tmp_path: Path) -> None:
    drawn = (*WORDS, "serve.sampling.temperature=0.8")
    rows = [
        served_row(tmp_path / "a", serving_plan(*drawn, "engine=llama_cpp"), answer(0), answer(1)),
        served_row(tmp_path / "b", serving_plan(*drawn, "engine=vllm"), answer(0), answer(1)),
        served_row(tmp_path / "c", serving_plan(*WORDS, "engine=vllm"), answer(0), answer(1)),
    ]
    (line,) = lines(*rows)
    assert line.endswith("because each engine draws tokens in its own way (serve.sampling)"), "and c is greedy"


def test_an_output_that_is_only_longer_differs(tmp_path: Path) -> None:
    other = answer(1, token_ids=[0, 1, 2, 3, 4], asked_output_tokens=4)
    rows = [
        served_row(tmp_path / "a", serving_plan(*WORDS), answer(0), answer(1)),
        served_row(tmp_path / "b", serving_plan(*WORDS, "engine=vllm"), answer(0), other),
    ]
    (line,) = lines(*rows)
    assert "token 5 of request 1 at load point 1: None there, 4 here" in line


def test_nothing_is_said_of_other_requests_and_of_texts_nothing_is_known(tmp_path: Path) -> None:
    texts = [answer(index, token_ids=None, text="a") for index in range(2)]
    rows = [
        served_row(tmp_path / "a", serving_plan(*WORDS), answer(0), answer(1)),
        served_row(tmp_path / "b", serving_plan(*WORDS, "seed=1"), answer(0), answer(1)),
        served_row(tmp_path / "c", serving_plan(*WORDS, "engine=vllm"), *texts),
    ]
    assert lines(*rows) == [
        "same work: vllm and transformers: outputs cannot be compared, because a server tells no token ids"
    ]


def test_weights_of_their_own_cannot_be_compared(tmp_path: Path) -> None:
    rows = [
        served_row(tmp_path / "a", serving_plan(*WORDS), answer(0), answer(1)),
        served_row(tmp_path / "b", serving_plan(*WORDS, "engine=vllm", "serve.weights=own"), answer(0), answer(1)),
    ]
    (line,) = lines(*rows)
    assert line.endswith("because an engine drew weights of its own (serve.weights=folder)")
