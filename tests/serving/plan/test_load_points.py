from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmexp.serving.config.run import ServeConfig
from llmexp.serving.plan.load_points import due_s, load_points


def serve(**words: Any) -> ServeConfig:
    given = {"name": "any", "requests": 30, "prompt": {"tokens": 8}, "output": {"tokens": 4}}
    return ServeConfig.model_validate(given | words)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text("due_s,prompt_tokens,output_tokens\n" + "".join(f"{second},10,2\n" for second in range(21)))
    return str(path)


def test_a_trace_is_one_more_load_of_the_requests_that_it_has(trace: str) -> None:
    config = serve(rate=["max", 2.0], concurrency=4, trace={"file": trace, "speed": 4.0})
    points = load_points(config)
    assert [str(point) for point in points] == ["max", "2/s", "4 at a time", "trace 4/s"]
    assert [point.number for point in points] == [0, 1, 2, 3]
    assert [point.requests for point in points] == [30, 30, 30, 21]
    assert points[3].params == {"load": "trace", "rate_per_s": 4.0}
    assert due_s(points[3], config, seed=1, count=3) == [0, 0.25, 0.5]


def test_a_trace_is_cut_to_the_requests_of_a_load_and_warms_up_with_its_own_first_ones(trace: str) -> None:
    (point,) = load_points(serve(requests=3, trace={"file": trace}))
    assert (point.requests, point.warmup) == (3, 3)


def test_a_trace_whose_requests_came_at_once_is_a_burst(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("due_s,prompt_tokens,output_tokens\n1,10,2\n1,10,2\n")
    config = serve(trace={"file": str(tmp_path / "trace")})
    (point,) = load_points(config)
    assert (str(point), point.params) == ("trace max", {"load": "trace", "rate_per_s": "max"})
    assert due_s(point, config, seed=1, count=2) == [0, 0]


def test_a_ramp_is_one_more_load_whose_rate_changes() -> None:
    config = serve(rate=1.0, arrivals="constant", ramp={"first_per_s": 1.0, "last_per_s": 9.0})
    _, point = load_points(config)
    assert (str(point), point.requests) == ("ramp 5/s", 30)
    times = due_s(point, config, seed=1, count=30)
    # 30 requests at 5 a second on average, of which the last one is not yet due at the end.
    assert 0 == times[0] < times[-1] < 6
    assert times[1] - times[0] > 3 * (times[-1] - times[-2])
    assert due_s(point, config, seed=1, count=5) == times[:5]
