"""What a server told over a load point, and what its tokens cost."""

from __future__ import annotations

import pytest
from served_requests import answer, serving_plan

from llmexp.serving.record.server_samples import GpuSample, ServerSample
from llmexp.serving.server_values import server_values

PLAN = serving_plan("hardware=a800", "engine=vllm", "model=7b", "hardware.price_per_device_hour_usd=3.6")
ANSWERS = [answer(0, takes_s=10.0, tokens=50), answer(1, takes_s=10.0, tokens=50)]


def page(at_s: float, running: float, tokens: float) -> ServerSample:
    return ServerSample(at_s=at_s, page={"running": running, "generated_tokens": tokens})


def test_levels_counts_and_power_are_those_of_the_load() -> None:
    pages = [page(at_s, 2.0, 10 * at_s) for at_s in (0.0, 2.0, 5.0, 9.0, 10.0)]
    power = [ServerSample(at_s=at_s, gpus=[GpuSample(uuid="a", power_w=200.0)]) for at_s in (0.0, 10.0)]
    found = server_values(ANSWERS, [*pages, *power], PLAN)
    assert (found["running_requests_mean"], found["server_generated_tokens"]) == (2.0, 100.0)
    assert found["output_tokens_per_joule"] == pytest.approx(100 / 2000)
    assert found["usd_per_million_output_tokens"] == pytest.approx(3.6 / 3600 * 10 / 100 * 1e6)


def test_a_load_that_was_over_before_pages_were_read_has_no_levels() -> None:
    found = server_values(ANSWERS, [page(0.0, 0.0, 0), page(5.0, 0.0, 50)], PLAN)
    assert "running_requests_mean" not in found
    assert "server_generated_tokens" in found


def test_nothing_is_told_of_no_requests() -> None:
    assert server_values([], [page(0.0, 0.0, 0)], PLAN) == {}
