from __future__ import annotations

import random
from collections import Counter
from statistics import stdev
from types import SimpleNamespace

import pytest

from llmexp.analysis.paired import RepeatInRound
from llmexp.record.result import Metric, Stability
from llmexp.training.report.conclusion import ALIKE, FASTER, SLOWER, conclusion

REPEATS = 3


def row(method: str, speeds: list[float] | None, reasons: tuple[str, ...] = (), work: str = "tiny"):
    """What the conclusion asks of a row, measured in several processes; None: in one."""
    mean = sum(speeds) / len(speeds) if speeds else 1.0
    metric = Metric(mean=mean, std_between_repeats=stdev(speeds), n=len(speeds)) if speeds else Metric(mean=mean, n=1)
    judged = Stability(
        verdict="unstable" if reasons else "stable", reasons=list(reasons), drift_ratio=0.8, warmup_ratio=1.0
    )
    return SimpleNamespace(
        method=method,
        is_control=False,
        comparison_key={"model": work},
        result=SimpleNamespace(stability=judged),
        rate=metric,
    )


def test_methods_are_sorted_by_what_their_intervals_tell():
    rows = [
        row("Naive", [99, 100, 101]),
        row("F", [99.5, 100.5, 101]),
        row("R", [69, 70, 71]),
        row("C", [149, 150, 151]),
        row("Z2", [50, 70, 90]),
    ]
    assert conclusion(rows) == [
        "by the 96 % intervals of the repeats, slower than Naive: R; faster: C; no significant difference: F, Z2",
    ]


def test_where_several_runs_are_naive_each_line_says_beside_which():
    speeds = [99, 100, 101]
    rows = [row(method, speeds, work=work) for work in ("tiny", "small") for method in ("Naive", "F")]
    said = "by the 96 % intervals of the repeats, no significant difference: "
    assert conclusion(rows, lambda row: f"{row.method} ({row.comparison_key['model']})") == [
        f"beside Naive (tiny): {said}F",
        f"beside Naive (small): {said}F",
    ]
    again = [row("Naive", speeds), row("F", speeds), row("F", speeds)]
    numbers = {id(one): number for number, one in enumerate(again)}
    assert conclusion(again, lambda row: f"{row.method} {numbers[id(row)]}") == [f"{said}F 1, F 2"]


def test_a_wide_interval_is_judged_and_a_disturbed_run_is_not():
    rows = [
        row("Naive", [99, 100, 101], ("noise: …",)),
        row("R", [69, 70, 71], ("contention: …", "noise: …")),
        row("Z2", [50, 51, 52], ("noise: …",)),
    ]
    assert conclusion(rows) == [
        "by the 96 % intervals of the repeats, slower than Naive: Z2; "
        "not compared, because their measurements were disturbed: R"
    ]
    assert conclusion([row("Naive", [99, 100, 101], ("contention: …",)), row("F", [1, 2, 3])]) == [
        "no method is compared with Naive, whose measurements were disturbed"
    ]


def test_a_drift_widens_the_interval_by_its_own_size():
    drifting = [row("F", [84, 85, 86], ("drift: …",)), row("R", [69, 70, 71], ("drift: …",))]
    assert conclusion([row("Naive", [99, 100, 101]), row("F", [84, 85, 86]), *drifting[1:]]) == [
        "by the 96 % intervals of the repeats, slower than Naive: F, R",
    ]
    assert conclusion([row("Naive", [99, 100, 101]), *drifting]) == [
        "by the 96 % intervals of the repeats, slower than Naive: R; no significant difference: F",
    ]


CONTENDED = "contention: other processes took 0.80 of 2 cores while the ranks compute with 2"


def in_rounds(speeds: list[float]) -> list[RepeatInRound]:
    return [RepeatInRound(speed, 2, 0.8, f"{number}", f"{number}") for number, speed in enumerate(speeds)]


def shared(method: str, speeds: list[float], *besides: str):
    """A run that was interleaved with the others on a host that others shared."""
    return SimpleNamespace(**vars(row(method, speeds, (CONTENDED, *besides))), rounds=in_rounds(speeds))


def line(*rows) -> str:
    (said,) = conclusion(rows, rounds=lambda row: getattr(row, "rounds", ()))
    return said


def test_runs_of_a_shared_host_are_judged_by_their_rounds():
    naive = shared("Naive", [100, 60, 130, 80])
    assert line(naive, shared("F", [50, 30.3, 64.5, 40]), shared("R", [100.5, 60.1, 129, 80])) == (
        "round by round, as others shared the host, slower than Naive: F; no significant difference: R"
    )
    assert line(naive, shared("F", [50, 30.3, 64.5, 40], "GPU 0 throttled …")) == (
        "no method is compared with Naive, whose measurements were disturbed"
    )
    # The steps of F changed by a quarter, which may explain as much of the difference.
    assert "no significant difference: F" in line(naive, shared("F", [81, 48.3, 105.5, 65], "drift: …"))
    assert "slower than Naive: F" in line(naive, shared("F", [50, 30.3, 64.5, 40], "drift: …"))


def test_a_line_says_which_rules_it_has():
    quiet = SimpleNamespace(**vars(row("Naive", [100, 99, 101])), rounds=in_rounds([100, 99, 101]))
    assert line(quiet, row("R", [69, 70, 71]), shared("F", [50, 49.4, 50.6])) == (
        "by the 96 % intervals of the repeats, or round by round where others shared the host, slower than Naive: R, F"
    )


@pytest.mark.parametrize(
    "rows",
    [
        [row("F", [1, 2, 3])],
        [row("Naive", [1, 2, 3])],
        [row("Naive", None), row("F", None)],
        [row("Naive", [1, 2, 3]), row("F", [1, 2, 3], work="other")],
    ],
)
def test_nothing_is_concluded_without_several_processes_of_the_same_work(rows):
    assert conclusion(rows) == []


def verdicts(ratio: float, scatter: float, tables: int, methods: int = 5) -> Counter[str]:
    """How often a table of Naive and five methods of `ratio` times its speed says what, by any of its methods."""
    draw, found = random.Random(0), Counter()
    for _ in range(tables):
        naive = row("Naive", [draw.gauss(100, 100 * scatter) for _ in range(REPEATS)])
        others = [
            row("F", [draw.gauss(100 * ratio, 100 * ratio * scatter) for _ in range(REPEATS)]) for _ in range(methods)
        ]
        (line,) = conclusion([naive, *others])
        found["tables with a difference"] += SLOWER in line or FASTER in line
        for said in line.partition(", ")[2].split("; "):
            found[said.partition(":")[0]] += said.count("F")
    return found


def test_equal_methods_are_seldom_told_apart_and_unequal_ones_never_the_wrong_way():
    tables = 1000
    equal = verdicts(1.0, 0.03, tables)
    assert equal["tables with a difference"] < 0.1 * tables
    assert equal[SLOWER] + equal[FASTER] < 0.03 * 5 * tables
    slower = verdicts(0.7, 0.03, tables)
    assert slower[FASTER] == 0
    assert slower[SLOWER] > 0.9 * 5 * tables
    assert slower[ALIKE] + slower[SLOWER] == 5 * tables
