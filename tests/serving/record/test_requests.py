from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from llmexp.record.samples import Sample, read_samples
from llmexp.serving.record.requests import RequestSample, gaps_us

KNOWN: dict[str, Any] = {
    "index": 0,
    "warmup": False,
    "t_start_s": 1.0,
    "t_end_s": 9.0,
    "asked_prompt_tokens": 3,
    "asked_output_tokens": 2,
}


def test_times_of_chunks_come_back_to_the_microsecond_however_many_there_are() -> None:
    random, times_s = Random(1), [5.0]
    for _ in range(5000):
        times_s.append(times_s[-1] + random.random() / 100)
    sample = RequestSample(**KNOWN, sent_s=4.5, chunk_us=gaps_us(times_s, 4.5))
    assert sample.chunk_times_s == pytest.approx(times_s, rel=0, abs=0.51e-6)
    assert min(sample.chunk_us) >= 0


def test_a_line_is_read_back_as_it_was_and_by_those_who_want_its_times_alone(tmp_path: Path) -> None:
    path, sample = tmp_path / "samples.0.jsonl", RequestSample(**KNOWN, sent_s=1.5, chunk_us=[7, 0], text="größe\u2028")
    path.write_text(sample.model_dump_json() + "\n")
    assert read_samples(path, RequestSample) == [sample]
    (bare,) = read_samples(path, Sample)
    assert (bare.t_start_s, bare.t_end_s) == (sample.scheduled_s, sample.end_s) == (1.0, 9.0)


def test_nobody_counts_chunks_as_tokens() -> None:
    assert RequestSample(**KNOWN, sent_s=1.5, chunk_us=[7, 0]).output_tokens is None
    assert RequestSample(**KNOWN, token_ids=[4, 5]).output_tokens == 2
    assert RequestSample(**KNOWN, token_ids=[4, 5], usage_output_tokens=3).output_tokens == 3


def test_a_server_whose_count_is_not_what_it_sent_is_told() -> None:
    sample = RequestSample(**KNOWN, token_ids=[4], usage_output_tokens=2, usage_prompt_tokens=3)
    assert sample.differences == ["2 output tokens were asked for, it sent 1"]
    assert RequestSample(**KNOWN, token_ids=[4], problem="reset").differences == []
