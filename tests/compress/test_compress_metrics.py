"""The metrics of a compressed model: sums over tokens, and intervals by documents that hold what they say."""

from __future__ import annotations

import random
from math import exp, sqrt

import pytest
from compressed_runs import READ, compress_plan, compressed, documents

from llmexp.compress.metrics import METRICS, CompressRepeat, ratio_of_sums
from llmexp.compress.task import COMPRESS

TOKENS = sum(tokens for tokens, _ in READ)


@pytest.fixture(scope="module")
def value():
    plan = compress_plan("model=organization/name", "compress=layers")

    def of(name: str, repeat: CompressRepeat) -> float | None:
        found = METRICS[name].function(repeat, plan)
        return found.value if found else None

    return of


def test_perplexities_are_of_all_tokens_together(value) -> None:
    repeat = compressed(documents(worse=0.1))
    original = exp(sum(nll for _, nll in READ) / TOKENS)
    assert value("original_perplexity", repeat) == pytest.approx(original)
    assert value("perplexity", repeat) == pytest.approx(original * exp(0.1))
    assert value("perplexity_ratio", repeat) == pytest.approx(exp(0.1))
    assert value("kl_nats_per_token", repeat) == pytest.approx(0.05)
    assert value("top1_agreement", repeat) == 0.5


def test_what_is_the_same_in_each_document_has_no_interval_and_one_document_has_none(value) -> None:
    even = compressed(documents(worse=0.1))
    ends = [value(f"perplexity_ratio_{end}", even) for end in ("low", "high")]
    assert ends == [pytest.approx(exp(0.1)), pytest.approx(exp(0.1))]
    one = compressed(documents(read=READ[:1]))
    assert [
        value(f"{name}_{end}", one) for name in ("perplexity_ratio", "kl_nats_per_token") for end in ("low", "high")
    ] == [None] * 4
    assert value("perplexity_ratio", one) == pytest.approx(exp(0.1))


def test_sizes_are_those_of_the_summary(value) -> None:
    repeat = compressed(documents(), weight_bits=3.5, layers_bytes=7, file_bytes=9, sparsity=0.5, compress_time_s=11)
    named = ("weight_bits", "layers_bytes", "file_bytes", "sparsity", "compress_time_s")
    assert [value(name, repeat) for name in named] == [3.5, 7, 9, 0.5, 11]


def test_the_error_of_a_ratio_is_that_of_what_documents_are_off_it() -> None:
    found = ratio_of_sums([1.0, 5.0, 6.0], [2.0, 4.0, 6.0])
    off = (1.0 - 2.0, 5.0 - 4.0, 6.0 - 6.0)
    assert (found.value, found.freedom) == (1.0, 2)
    assert found.error == pytest.approx(sqrt(3 / 2 * sum(each**2 for each in off)) / 12)


@pytest.mark.parametrize(("count", "share"), [(8, 0.91), (32, 0.93)])
def test_intervals_hold_the_truth_as_often_as_the_page_says(count: int, share: float) -> None:
    """Documents of unlike lengths, some much harder than others; a simulation has an error of a point."""
    draw, held, trials, mean = random.Random(count), 0, 1500, 0.1
    for _ in range(trials):
        sizes = [draw.randint(64, 512) for _ in range(count)]
        values = [size * mean * draw.gammavariate(2.0, 0.5) for size in sizes]
        low, high = ratio_of_sums(values, sizes).interval()
        held += low <= mean <= high
    assert held / trials == pytest.approx(share, abs=0.02)


def test_what_a_reader_must_know_is_said() -> None:
    assert COMPRESS.remark([compressed(documents(), overlap=0.009)]) == ""
    assert COMPRESS.remark([compressed(documents(), overlap=0.02)]) == (
        "2.0 % of the held-out windows of 16 tokens stand in the calibration text too"
    )
