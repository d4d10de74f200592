"""The limits of a run: the highest rates, of memory those alone that no cache can have helped."""

from __future__ import annotations

from typing import Any

import pytest
from planning import make_plan

from llmexp.analysis.window import Repeat
from llmexp.micro.limits import LIMITS
from llmexp.micro.plan.micro_plan import MicroPlan
from llmexp.micro.points import MicroRepeat
from llmexp.micro.record import CallSample
from llmexp.record.samples import RankSummary

SIZES = (2**16, 2**20, 2**26)
COPIES = ("micro=copies", "micro.copies.kinds=[device_to_device]", f"micro.copies.bytes={[*SIZES]}")


def plan(*words: str) -> MicroPlan:
    found: Any = make_plan("task=micro", "hardware=cpu", *words)
    return found


def repeat(*measured: tuple[float, int], cache_bytes: int | None) -> MicroRepeat:
    """Return a repeat of one rank, with the seconds of a call and the sets of inputs of each point."""
    samples = [
        CallSample(index=index, warmup=False, t_start_s=0, t_end_s=1, times_s=[time_s] * 5, input_sets=sets)
        for index, (time_s, sets) in enumerate(measured)
    ]
    what_ran = {"cache_bytes": {"device": cache_bytes, "host": cache_bytes}}
    rank = RankSummary(rank=0, window_wall_s=1, peak_rss_bytes=1, what_ran=what_ran)
    return Repeat((rank,), (), tuple((sample,) for sample in samples))


def limit(name: str, found: MicroRepeat, *words: str) -> float | None:
    value = LIMITS[name].function(found, plan(*words))
    return value.value if value else None


# At 64 KiB a copy is six times as fast as at 64 MiB, because the cache has its data.
MEASURED = ((2**16 / 6e9, 64), (2**20 / 3e9, 64), (2**26 / 1e9, 5))


@pytest.mark.parametrize(
    ("cache_bytes", "wanted"),
    [
        (2**20, 6e9),  # 64 sets of 128 KiB are 8 MiB
        (2**23, 3e9),
        (2**28, 1e9),
        (2**30, None),
        (None, None),
    ],
)
def test_copies_that_a_cache_may_hold_set_no_limit(cache_bytes: int | None, wanted: float | None) -> None:
    found = limit("device_to_device_bytes_per_s", repeat(*MEASURED, cache_bytes=cache_bytes), *COPIES)
    assert found == (None if wanted is None else pytest.approx(wanted))


def test_the_triad_and_adamw_count_only_beyond_the_cache_too() -> None:
    for name, words in (
        ("memory_bytes_per_s", ("micro=memory", "micro.memory.bytes=[1048576]")),
        ("adamw_on_device_bytes_per_s", ("micro=optimizer", "micro.optimizer.parameters=[65536]")),
    ):
        assert limit(name, repeat((1.0, 1), cache_bytes=2**26), *words) is None
        assert limit(name, repeat((1.0, 1), cache_bytes=2**19), *words)


def test_what_memory_does_not_bound_needs_no_cache_to_be_known() -> None:
    words = ("micro=disk", "micro.disk.kinds=[write]", "micro.disk.bytes=[1000]")
    assert limit("disk_write_bytes_per_s", repeat((1.0, 1), cache_bytes=None), *words) == 1000
