"""What a load gets: Little's law, saturation, room in the cache, and no more than the device computes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.prediction.served import architecture, hardware
from llmexp.serving.predict.batching import Limits, Load, LoadOutcome, Server
from llmexp.serving.predict.held import Formats, held
from llmexp.serving.predict.limits import besides, cache_room
from llmexp.serving.predict.rates import rates_of

LOAD = Load(prompt=500, output=200)


def server(model: str = "llama3-8b", machine: str = "a100", cards: int = 1, most: int = 256) -> Server:
    part = held(architecture(model), cards, Formats())
    room = cache_room(hardware(machine), part.weights_bytes)
    return Server(part, rates_of(hardware(machine), "bf16", "python", cards), Limits(most, 8192, room))


def at(rate: float) -> LoadOutcome:
    return server().outcome(replace(LOAD, rate_per_s=rate, requests=1000))


def together(count: int, made: Server | None = None) -> LoadOutcome:
    return (made or server()).outcome(replace(LOAD, concurrency=count))


def test_more_at_a_time_get_more_tokens_each_of_them_later() -> None:
    found = [together(count) for count in (1, 2, 4, 16, 64, 200)]
    for few, many in pairwise(found):
        assert many.output_tokens_per_s > few.output_tokens_per_s
        assert many.tpot_s > few.tpot_s
        assert many.ttft_s > few.ttft_s


def test_a_higher_rate_has_more_in_flight_and_slower_tokens() -> None:
    found = [at(rate) for rate in (0.1, 1.0, 4.0, 8.0)]
    for low, high in pairwise(found):
        assert high.in_flight > low.in_flight
        assert high.tpot_s > low.tpot_s
    assert [round(each.requests_per_s, 6) for each in found] == [0.1, 1.0, 4.0, 8.0]
    assert not any(each.saturated for each in found)


def test_littles_law_holds() -> None:
    """A request sees the others in flight and itself."""
    for rate in (0.5, 2.0, 6.0):
        found = server().outcome(replace(LOAD, rate_per_s=rate))
        assert found.in_flight - 1 == pytest.approx(rate * found.life_s, rel=1e-3)


def test_above_saturation_requests_wait_and_throughput_stays() -> None:
    highest = server().saturation_per_s(LOAD)
    below, above, far = at(0.95 * highest), at(1.05 * highest), at(4 * highest)
    assert (below.saturated, above.saturated, far.saturated) == (False, True, True)
    assert above.requests_per_s == pytest.approx(far.requests_per_s)
    assert far.requests_per_s == pytest.approx(highest)
    assert far.ttft_s > above.ttft_s > below.ttft_s


def test_a_short_open_load_ends_before_so_many_are_in_flight() -> None:
    """All requests in flight are no more than were sent, however fast: some begin and end while few are beside."""
    short, long, endless = (
        server().outcome(replace(LOAD, rate_per_s=8.0, requests=count)) for count in (20, 2000, None)
    )
    assert short.in_flight < 20
    assert short.tpot_s < long.tpot_s < endless.tpot_s
    assert long.tpot_s == pytest.approx(endless.tpot_s, rel=0.03)
    fast = server().outcome(replace(LOAD, rate_per_s=1000.0, requests=60))
    assert fast.in_flight == pytest.approx(60, rel=0.05)
    assert fast.ttft_s < together(60).ttft_s + 0.1


def test_one_request_alone_takes_its_prompt_and_its_tokens() -> None:
    found = together(1)
    assert found.life_s == pytest.approx(found.output_tokens_per_s**-1 * LOAD.output)
    assert found.ttft_s < 0.2
    assert found.tpot_s * LOAD.output == pytest.approx(found.life_s, rel=0.1)


@pytest.mark.parametrize(("model", "machine", "cards"), [("llama3-8b", "h100", 1), ("llama3-70b", "a100", 4)])
@pytest.mark.parametrize(("prompt", "output"), [(128, 128), (128, 2048), (4000, 100)])
def test_throughput_is_never_above_what_the_devices_compute(model, machine, cards, prompt, output) -> None:
    made = server(model, machine, cards, most=4096)
    found = made.outcome(Load(prompt=prompt, output=output))
    flops = 2 * made.held.active * (prompt + output) * found.requests_per_s
    assert flops < 0.9 * hardware(machine).peak_flops_per_s["bf16"]


def test_the_cache_bounds_how_many_requests_run() -> None:
    roomy = server(most=10_000)
    tight = replace(roomy, limits=replace(roomy.limits, cache_bytes=10 * roomy.held.cache_bytes(700)))
    assert together(1000, tight).in_flight == pytest.approx(10)
    assert together(1000, tight).output_tokens_per_s < together(1000, roomy).output_tokens_per_s
    assert together(1000, server(most=32)).in_flight == 32


def test_requests_without_room_wait_for_those_that_have_it() -> None:
    made = server(most=32)
    inside, outside = together(32, made), together(96, made)
    assert outside.ttft_s - inside.ttft_s == pytest.approx(2 * inside.life_s)
    assert (outside.tpot_s, outside.requests_per_s) == (inside.tpot_s, inside.requests_per_s)
    assert (inside.saturated, outside.saturated) == (False, True)


def test_a_burst_of_equal_requests_nears_the_endless_load() -> None:
    endless = server().outcome(LOAD).output_tokens_per_s
    some, many = (server().outcome(replace(LOAD, requests=count)).output_tokens_per_s for count in (50, 100_000))
    assert some < many == pytest.approx(endless)


def test_a_burst_of_one_request_lasts_one_length() -> None:
    one, two = (server().outcome(replace(LOAD, requests=count, varied=True)) for count in (1, 2))
    assert 1 / one.requests_per_s == pytest.approx(one.life_s, rel=0.05)
    assert 2 / two.requests_per_s == pytest.approx(1.5 * two.life_s, rel=0.05)


def test_a_closed_load_runs_out_at_its_end() -> None:
    """Of 80 requests by 16, printed means of those in flight are 13.5 to 14.5 (sgl-cookbook)."""
    load = replace(LOAD, varied=True, concurrency=16)
    endless, some, more = (server().outcome(replace(load, requests=count)) for count in (None, 80, 800))
    assert 13 < 16 * some.requests_per_s / endless.requests_per_s < 14.5
    assert some.requests_per_s < more.requests_per_s < endless.requests_per_s
    equal = replace(load, varied=False)
    assert server().outcome(replace(equal, requests=80)).requests_per_s == endless.requests_per_s


def test_a_small_card_keeps_less_beside_weights() -> None:
    """Llama 3 8B in 16 bits runs on 24 GB with some requests at a time; 80 GB cards keep 6 GiB."""
    assert server("llama3-8b", "rtx4090").limits.cache_bytes > 20 * server("llama3-8b").held.cache_bytes(700)
    large = hardware("a100")
    assert besides(large) == 6 * 2**30 == 0.9 * float(large.memory_bytes or 0) - cache_room(large, 0.0)


def test_lengths_that_vary_leave_few_requests_at_the_end() -> None:
    burst = replace(LOAD, requests=300)
    assert server().outcome(replace(burst, varied=True)).requests_per_s < server().outcome(burst).requests_per_s


def test_small_chunks_of_a_long_prompt_delay_its_first_token() -> None:
    made = server()
    small_chunks = replace(made, limits=replace(made.limits, prefill=512))
    long = Load(prompt=16_000, output=100, concurrency=4)
    assert small_chunks.outcome(long).ttft_s > made.outcome(long).ttft_s
    short = Load(prompt=500, output=100, concurrency=4)
    assert small_chunks.outcome(short) == made.outcome(short)


def test_more_cards_answer_faster() -> None:
    one, four = (together(16, server("llama3-8b", "h100", cards)) for cards in (1, 4))
    assert four.tpot_s < one.tpot_s
    assert four.output_tokens_per_s < 4 * one.output_tokens_per_s


def test_a_single_output_token_has_no_time_between_tokens() -> None:
    found = server().outcome(Load(prompt=2000, output=1, concurrency=1))
    assert found.tpot_s == 0.0
    assert found.ttft_s == pytest.approx(found.life_s, rel=0.3)


def test_times_to_the_first_token_grow_and_do_not_jump_where_more_come_than_there_is_room_for() -> None:
    highest = server().saturation_per_s(LOAD)
    found = [at(highest * share).ttft_s for share in (0.98, 1.0, 1.02, 1.05, 1.08, 1.1, 1.12, 1.15, 1.2)]
    assert found == sorted(found)
    assert all(later < 1.7 * sooner for sooner, later in pairwise(found))


def test_no_more_are_in_flight_than_are_sent() -> None:
    few = server().outcome(replace(LOAD, concurrency=1024, requests=2))
    assert few.in_flight == 2
    assert few.output_tokens_per_s == pytest.approx(server().outcome(replace(LOAD, concurrency=2)).output_tokens_per_s)
    varied = [
        server().outcome(replace(LOAD, concurrency=64, requests=count, varied=True)).output_tokens_per_s
        for count in (63, 64, 65)
    ]
    assert max(varied) < 1.05 * min(varied)


def test_an_only_token_comes_at_the_end() -> None:
    found = together(64, server())
    one = server().outcome(replace(LOAD, output=1, concurrency=64))
    assert one.tpot_s == 0
    assert one.ttft_s >= one.life_s
    assert found.tpot_s > 0


def test_tokens_after_a_prompt_of_several_iterations_take_as_long_as_after_one_of_one() -> None:
    one, two = (
        server().outcome(Load(prompt=prompt, output=2, rate_per_s=0.01, requests=10)).tpot_s for prompt in (8192, 8193)
    )
    assert two == pytest.approx(one, rel=0.05)


def test_the_first_requests_of_a_closed_load_wait_for_each_other() -> None:
    endless, once, often = (
        server().outcome(replace(LOAD, concurrency=32, requests=count)).ttft_s for count in (None, 32, 320)
    )
    assert once > 1.5 * endless
    assert often - endless == pytest.approx((once - endless) / 10)


def test_long_prompts_that_come_at_once_are_read_one_after_the_other() -> None:
    made = server()
    load = Load(prompt=2 * made.limits.prefill, output=100, concurrency=4)
    waited = made.outcome(replace(load, requests=4)).ttft_s - made.outcome(load).ttft_s
    alone = made.outcome(replace(load, concurrency=1)).ttft_s - made.rates.first_token_s
    # The second waits for one prompt, the third for two, the last for three.
    assert waited == pytest.approx(1.5 * alone, rel=0.01)


def test_only_tokens_of_a_closed_load_come_before_its_end() -> None:
    found = server().outcome(replace(LOAD, output=1, concurrency=64, requests=64))
    assert found.ttft_s < 1.05 * 64 / found.requests_per_s
