from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.errors import ConfigError
from llmexp.serving.config.load import TraceConfig
from llmexp.serving.plan.request_trace import RequestTrace, load_trace

Load = Callable[..., RequestTrace]
ROWS = "due_s,prompt_tokens,output_tokens\n5,10,1\n6,20,1\n8,30,1\n11,40,1\n"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def of(text: str = ROWS, requests: int = 100, **words: Any) -> RequestTrace:
        (tmp_path / "trace").write_text(text)
        return load_trace(TraceConfig.model_validate({"file": str(tmp_path / "trace")} | words), requests)

    return of


def prompts(trace: RequestTrace) -> list[int]:
    return [each.prompt_tokens for each in trace.requests]


def test_times_count_from_the_first_request(load: Load) -> None:
    trace = load()
    assert [each.due_s for each in trace.requests] == [0, 1, 3, 6]
    assert trace.rate_per_s == 0.5
    assert load(requests=1).rate_per_s is None


def test_speed_multiplies_the_rate(load: Load) -> None:
    trace = load(speed=2)
    assert [each.due_s for each in trace.requests] == [0, 0.5, 1.5, 3]
    assert trace.rate_per_s == 1


def test_a_part_is_the_first_requests_or_a_span_of_the_trace(load: Load) -> None:
    assert prompts(load(requests=2)) == [10, 20]
    span = load(begin_s=1, end_s=6)
    assert prompts(span) == [20, 30]
    assert [each.due_s for each in span.requests] == [0, 2]
    assert prompts(load(begin_s=1, end_s=60, requests=1)) == [20]


def test_what_comes_after_the_part_is_not_read(load: Load) -> None:
    broken = ROWS + "x,x,x\n"
    assert len(load(broken, requests=4).requests) == 4
    assert len(load(broken.replace("x,x,x", "20,1,1\nx,x,x"), end_s=7).requests) == 4
    with pytest.raises(ConfigError, match=r"trace:6: due_s=x"):
        load(broken)


def test_long_requests_are_refused_unless_they_are_to_be_left_out(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"trace:4: 30 \+ 1 tokens .*max_positions=21, and so are 1 more: "):
        load().check_lengths(21)
    trace = load(max_tokens=21)
    trace.check_lengths(21)
    assert prompts(trace) == [10, 20]
    assert trace.left_out == 2


def test_requests_that_failed_when_they_were_recorded_are_left_out_and_counted(load: Load) -> None:
    trace = load(ROWS.replace("20,1", "20,0").replace("30,1", "0,1"))
    assert prompts(trace) == [10, 40]
    assert trace.left_out == 2


def test_blocks_have_to_be_as_many_as_the_prompt_has(load: Load) -> None:
    line = '{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [8, 9]}'
    trace = load(line)
    assert trace.requests[0].hash_ids == (8, 9)
    assert not any(request.hash_ids for request in load().requests)
    with pytest.raises(ConfigError, match=r"trace:1: 2 hash_ids for 700 tokens, which are 44 blocks of 16: set serve"):
        load(line, block_tokens=16)


def test_a_part_without_requests_is_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"has no request to send here, and 4 were left out$"):
        load(max_tokens=1)
    with pytest.raises(ConfigError, match=r"has no request to send here, and 0 were left out$"):
        load(begin_s=100)


def test_a_changed_file_is_read_again(load: Load) -> None:
    assert len(load().requests) == 4
    assert len(load(ROWS + "30,1,1\n").requests) == 5


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^serve\.trace\.file=none\.csv: cannot be read: No such file"):
        load_trace(TraceConfig(file="none.csv"), 1)


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match=r"serve\.trace\.end_s=5 must be above serve\.trace\.begin_s=5"):
        TraceConfig(file="any", begin_s=5, end_s=5)
