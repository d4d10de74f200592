from __future__ import annotations

from math import inf
from typing import Any

import pytest

from llmexp.serving.analysis.request_latency import (
    Objective,
    end_to_end_s,
    goodput_per_s,
    inter_token_s,
    send_delay_s,
    time_per_output_token_s,
    time_to_first_token_s,
)
from llmexp.serving.record.requests import RequestSample


def sample(**changed: Any) -> RequestSample:
    """Due at 10 s, sent half a second late; tokens at 11, 11.5 and 12.5 s; ended at 13 s."""
    known: dict[str, Any] = {
        "index": 0,
        "warmup": False,
        "t_start_s": 10.0,
        "sent_s": 10.5,
        "first_byte_s": 10.75,
        "chunk_us": [500_000, 500_000, 1_000_000],
        "t_end_s": 13.0,
        "status": 200,
        "asked_prompt_tokens": 8,
        "asked_output_tokens": 5,
        "usage_prompt_tokens": 8,
        "usage_output_tokens": 5,
    }
    return RequestSample(**known | changed)


def test_latencies_from_when_it_was_due_and_from_when_it_was_sent() -> None:
    assert (time_to_first_token_s(sample()), time_to_first_token_s(sample(), "sent")) == (1.0, 0.5)
    assert (end_to_end_s(sample()), end_to_end_s(sample(), "sent")) == (3.0, 2.5)
    assert send_delay_s(sample()) == 0.5


def test_time_per_token_goes_by_the_count_of_tokens_and_not_of_chunks() -> None:
    assert time_per_output_token_s(sample()) == pytest.approx(1.5 / 4)
    assert time_per_output_token_s(sample(usage_output_tokens=None, token_ids=[1, 2, 3])) == pytest.approx(0.75)
    assert time_per_output_token_s(sample(usage_output_tokens=None)) is None
    assert time_per_output_token_s(sample(usage_output_tokens=1)) is None


def test_time_per_token_ends_with_the_output_and_not_with_what_comes_after_it() -> None:
    # The count of tokens and the end of the stream come half a second late, after 15 tokens 4.9 ms apart.
    chunks = [500_000] + [4_900] * 14
    late = sample(chunk_us=chunks, asked_output_tokens=15, usage_output_tokens=15, t_end_s=11.0 + 14 * 0.0049 + 0.5)
    assert time_per_output_token_s(late) == pytest.approx(0.0049)
    assert end_to_end_s(late) == pytest.approx(1.5686)


def test_time_per_token_is_the_mean_of_the_gaps_that_a_reader_sees() -> None:
    # Also where the first chunk has several tokens.
    together = sample(chunk_tokens=[3, 1, 1])
    gaps_s = inter_token_s(together)
    assert time_per_output_token_s(together) == pytest.approx(sum(gaps_s) / len(gaps_s))
    assert time_per_output_token_s(sample(chunk_us=[2_500_000])) == 0.0
    assert time_per_output_token_s(sample(chunk_us=[])) is None


def test_of_several_answers_each_has_its_own_time_per_token() -> None:
    """Two answers of three tokens, half a second and a second apart: the other's tokens lie between one's."""
    both = sample(
        chunk_us=[500_000, 0, 500_000, 500_000, 0, 1_000_000],
        chunk_answers=[0, 1, 0, 0, 1, 1],
        asked_output_tokens=6,
        usage_output_tokens=6,
    )
    assert sorted(inter_token_s(both)) == [0.5, 0.5, 1.0, 1.0]
    assert time_per_output_token_s(both) == pytest.approx(0.75)
    assert time_to_first_token_s(both) == 1.0
    assert time_per_output_token_s(sample(chunk_us=[1, 1], chunk_answers=[0, 1], usage_output_tokens=2)) is None


def test_tokens_of_one_chunk_have_no_time_between_them() -> None:
    assert inter_token_s(sample()) == [0.5, 1.0]
    assert inter_token_s(sample(chunk_tokens=[2, 1, 2])) == [0.0, 0.5, 1.0, 0.0]
    assert inter_token_s(sample(chunk_us=[])) == []


def test_what_has_no_whole_answer_has_no_latency_of_one() -> None:
    broken = sample(problem="reset")
    assert time_to_first_token_s(broken) == 1.0
    assert (end_to_end_s(broken), time_per_output_token_s(broken)) == (None, None)
    never = sample(problem="refused", sent_s=None, first_byte_s=None, chunk_us=[])
    assert (time_to_first_token_s(never), send_delay_s(never)) == (None, None)


@pytest.mark.parametrize(
    ("objective", "is_kept"),
    [
        (Objective(), True),
        (Objective(ttft_s=1.0, tpot_s=0.5, end_to_end_s=3.0), True),
        (Objective(ttft_s=0.9), False),
        (Objective(tpot_s=0.3), False),
        (Objective(end_to_end_s=2.9), False),
    ],
)
def test_an_objective_counts_from_when_a_request_was_due(objective: Objective, is_kept: bool) -> None:
    assert objective.is_kept_by(sample()) == is_kept


def test_only_whole_answers_of_the_asked_length_keep_an_objective() -> None:
    assert not Objective().is_kept_by(sample(problem="reset"))
    assert not Objective().is_kept_by(sample(usage_output_tokens=4))
    assert Objective(tpot_s=0.1).is_kept_by(sample(asked_output_tokens=1, usage_output_tokens=1))


def test_a_limit_of_the_time_per_token_is_unknown_where_nobody_counted_tokens() -> None:
    uncounted = sample(usage_output_tokens=None)
    assert Objective(tpot_s=9.0).is_kept_by(uncounted) is None
    assert Objective(ttft_s=1.0, tpot_s=9.0).used_by(uncounted) is None
    # What missed another limit has missed the objective, and one that has no such limit is known.
    assert Objective(ttft_s=0.5, tpot_s=9.0).used_by(uncounted) == 2.0
    assert Objective(ttft_s=1.0).is_kept_by(uncounted) is True
    assert Objective(tpot_s=9.0).used_by(sample(usage_output_tokens=None, problem="reset")) == inf
    assert Objective(tpot_s=9.0).used_by(sample(chunk_us=[])) == inf


def test_goodput_is_not_known_where_it_is_not_known_of_a_request() -> None:
    both = [sample(), sample(index=1, usage_output_tokens=None)]
    assert goodput_per_s(both, Objective(tpot_s=9.0)) is None
    assert goodput_per_s(both, Objective(ttft_s=9.0)) == pytest.approx(2 / 3)


def test_goodput_is_over_the_whole_time_of_the_load() -> None:
    late = sample(index=1, t_start_s=12.0, sent_s=12.0, t_end_s=20.0)
    assert goodput_per_s([sample(), late], Objective(end_to_end_s=4.0)) == pytest.approx(1 / 10)
    assert goodput_per_s([sample(), late], Objective()) == pytest.approx(2 / 10)
    assert goodput_per_s([], Objective()) == 0.0


def test_what_a_request_used_of_its_allowance_is_its_worst_share() -> None:
    whole = Objective(ttft_s=2.0, tpot_s=1.0, end_to_end_s=12.0)
    # 1 of 2 s, 0.375 of 1 s, 3 of 12 s.
    assert whole.used_by(sample()) == pytest.approx(0.5)
    assert Objective(tpot_s=0.25).used_by(sample()) == pytest.approx(1.5)
    assert Objective().used_by(sample()) == 0.0
    assert Objective(tpot_s=0.1).used_by(sample(usage_output_tokens=1, asked_output_tokens=1)) == 0.0
    assert whole.used_by(sample(problem="reset")) == inf
