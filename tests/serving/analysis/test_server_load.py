"""What a server was like over a window, against values worked out by hand."""

from __future__ import annotations

from dataclasses import fields

import pytest

from llmexp.serving.analysis.server_load import LoadLevel, server_load
from llmexp.serving.record.server_samples import GpuSample, ServerMetric, ServerSample


def pages(metric: ServerMetric, *points: tuple[float, float]) -> list[ServerSample]:
    return [ServerSample(at_s=at_s, page={metric: value}) for at_s, value in points]


def test_a_level_is_a_mean_over_time_and_its_highest_sample() -> None:
    # From 10 to 14: 0 to 8 over 2 s, then 8 for 2 s: (8 + 16) / 4.
    samples = pages("running", (8, 0), (10, 0), (12, 8), (14, 8), (20, 100))
    assert server_load(samples, 10, 14).running == LoadLevel(6, 8)


def test_pages_that_did_not_come_count_for_the_time_that_they_left_open() -> None:
    # Five samples of an idle second weigh no more than the busy time for which there is one page only.
    samples = pages("waiting", (0, 0), (0.25, 0), (0.5, 0), (0.75, 0), (1, 0), (5, 40), (9, 40))
    samples.insert(5, ServerSample(at_s=3, missed="no whole page within 2 s"))
    load = server_load(samples, 0, 9)
    assert load.waiting is not None
    assert load.waiting.mean == pytest.approx((4 * 20 + 4 * 40) / 9)
    assert (load.pages, load.pages_missed) == (7, 1)


def test_a_window_between_samples_gets_its_part_of_a_counters_growth() -> None:
    samples = pages("generated_tokens", (0, 1000), (2, 1200), (4, 1600))
    assert server_load(samples, 1, 3).generated_tokens == pytest.approx(100 + 200)
    assert server_load(samples, 0, 100).generated_tokens == 600


def test_a_counter_that_begins_anew_goes_on() -> None:
    samples = pages("preemptions", (0, 10), (1, 14), (2, 1), (3, 5))
    assert server_load(samples, 0, 3).preemptions == 4 + 1 + 4


def test_a_counter_that_is_named_once_it_counts_was_zero_before() -> None:
    samples = [*pages("running", (0, 1), (1, 1)), *pages("generated_tokens", (2, 50), (3, 80))]
    assert server_load(samples, 0, 3).generated_tokens == 80


def test_ratios_are_of_what_was_counted_in_the_window() -> None:
    samples = [
        ServerSample(
            at_s=at_s,
            page={
                "prefix_queried_tokens": 100 * at_s,
                "prefix_hit_tokens": 90 * min(at_s, 1) + 10 * max(0, at_s - 1),
                "drafted_tokens": 4 * at_s,
                "accepted_tokens": 0,
                "accepted_share": 0.5,
            },
        )
        for at_s in (0, 1, 2, 3)
    ]
    load = server_load(samples, 1, 3)
    assert load.prefix_hit_ratio == pytest.approx(0.1)
    assert load.draft_acceptance_ratio == 0, "what is counted comes before the share of the last batches"


def drafting(*pages: dict[ServerMetric, float]) -> list[ServerSample]:
    return [ServerSample(at_s=float(at_s), page=page) for at_s, page in enumerate(pages)]


def test_a_share_of_the_last_batches_counts_where_the_server_tells_how_much_it_drafts() -> None:
    """SGLang 0.5.23: its share is of proposed drafts, and its length has the token that a pass adds by itself."""
    told: list[dict[ServerMetric, float]] = [
        {"accepted_share": 0.0, "tokens_per_draft_step": 0.0, "draft_width": 0.0},
        {"accepted_share": 0.4, "tokens_per_draft_step": 2.2, "draft_width": 4.0},
        {"accepted_share": 0.6, "tokens_per_draft_step": 2.8, "draft_width": 4.0},
    ]
    load = server_load(drafting(*told), 0, 2)
    assert load.draft_acceptance_ratio == pytest.approx(0.5), "before the first batch nothing was drafted"
    assert load.tokens_per_draft_step == pytest.approx(2.5)
    assert load.tokens_per_draft_step == pytest.approx(1 + load.draft_acceptance_ratio * (4 - 1)), "as 0.5.23 has it"


def test_the_share_of_an_older_sglang_has_no_place_beside_those_of_others() -> None:
    """It had (accepted + 1) / 4 for a pass: 0.25 where no draft was accepted."""
    load = server_load(drafting({"accepted_share": 0.25}, {"accepted_share": 0.25}), 0, 1)
    assert (load.draft_acceptance_ratio, load.tokens_per_draft_step) == (None, None)


def test_counted_drafts_give_the_tokens_of_a_pass() -> None:
    """As vLLM counts: 10 passes proposed 3 tokens each, of which 12 became output."""
    begin: dict[ServerMetric, float] = {"draft_steps": 5.0, "drafted_tokens": 15.0, "accepted_tokens": 9.0}
    end: dict[ServerMetric, float] = {"draft_steps": 15.0, "drafted_tokens": 45.0, "accepted_tokens": 21.0}
    load = server_load(drafting(begin, end), 0, 1)
    assert load.draft_acceptance_ratio == pytest.approx(12 / 30)
    assert load.tokens_per_draft_step == pytest.approx(1 + 12 / 10)


def test_steps_that_read_a_prompt_verify_nothing() -> None:
    """As TGI counts: 44 steps of 4 requests; what it proposed it does not say, so that there is no ratio."""
    begin: dict[ServerMetric, float] = {"draft_steps": 0.0, "prompt_steps": 0.0, "accepted_tokens": 0.0}
    end: dict[ServerMetric, float] = {"draft_steps": 44.0, "prompt_steps": 4.0, "accepted_tokens": 60.0}
    load = server_load(drafting(begin, end), 0, 1)
    assert (load.draft_acceptance_ratio, load.tokens_per_draft_step) == (None, pytest.approx(1 + 60 / 40))


def test_a_server_that_drafts_nothing_has_no_tokens_of_a_pass() -> None:
    plain: list[dict[ServerMetric, float]] = [{"draft_steps": at, "prompt_steps": 0.0} for at in (0.0, 40.0)]
    assert server_load(drafting(*plain), 0, 1).tokens_per_draft_step is None


def test_nothing_counted_has_no_ratio() -> None:
    samples = [ServerSample(at_s=at_s, page={"prefix_queried_tokens": 7, "prefix_hit_tokens": 3}) for at_s in (0, 1)]
    assert server_load(samples, 0, 1).prefix_hit_ratio is None


def gpu(uuid: str, memory: float | None, power: float | None, clock: float | None) -> GpuSample:
    return GpuSample(uuid=uuid, memory_used_bytes=memory, power_w=power, sm_clock_megahertz=clock)


def test_machines_samples_give_memory_cores_power_and_clocks() -> None:
    samples = [
        ServerSample(
            at_s=at_s,
            processes=2,
            resident_bytes=100 + at_s,
            cpu_s=3.0 * at_s,
            gpus=[gpu("a", 10, 300, 1900), gpu("b", 20, 100 + 100 * at_s, 1800)],
        )
        for at_s in (0, 1, 2)
    ]
    load = server_load(samples, 0, 2)
    assert load.resident_bytes == LoadLevel(101, 102)
    assert load.cpu_cores == pytest.approx(3)
    assert load.gpu_memory_bytes == LoadLevel(30, 30)
    assert load.gpu_power_w == LoadLevel(500, 600)
    assert load.sm_clock_megahertz == LoadLevel(1850, 1850)


def test_a_gpu_that_does_not_tell_makes_no_sum_of_the_others() -> None:
    samples = [ServerSample(at_s=at_s, gpus=[gpu("a", 10, 300, 1900), gpu("b", 20, None, None)]) for at_s in (0.0, 1.0)]
    load = server_load(samples, 0, 1)
    assert (load.gpu_power_w, load.sm_clock_megahertz, load.gpu_memory_bytes) == (None, None, LoadLevel(30, 30))


@pytest.mark.parametrize("window", [(10, 12), (3, 4), (0.4, 0.6)])
def test_what_nobody_told_is_none(window: tuple[float, float]) -> None:
    samples = [
        ServerSample(at_s=at_s, page={"running": 1, "preemptions": at_s}, resident_bytes=1, cpu_s=at_s)
        for at_s in (0.0, 1.0, 2.0)
    ]
    for found in (server_load(samples, *window), server_load([], *window)):
        told = {one.name: getattr(found, one.name) for one in fields(found)}
        assert {told.pop("pages"), told.pop("pages_missed")} == {0}
        assert set(told.values()) == {None}


def test_one_sample_has_a_level_and_no_growth() -> None:
    load = server_load([ServerSample(at_s=1, page={"running": 4, "preemptions": 2})], 0, 2)
    assert (load.running, load.preemptions) == (LoadLevel(4, 4), None)
