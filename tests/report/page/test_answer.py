"""The answer in words follows the statistics: a clear winner, a tie, one run; and how often it errs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import fmean, stdev

import pytest
from marks import slow

from llmexp.record.result import Metric, Stability
from llmexp.report.page.answer import beside_best
from llmexp.report.table import build_report

TABLES = 300


def sentences(*folders):
    return "\n".join(build_report(folders).sections[0].answers)


def rate(mean, std=None, n=1):
    return {"tokens_per_s": Metric(mean=mean, std_between_repeats=std, n=n)}


def test_a_clear_winner_is_said_with_its_ratio(make_run):
    said = sentences(
        make_run("Naive", metrics=rate(1000, 4, 5)),
        make_run("F", metrics=rate(2000, 8, 5)),
        make_run("Z2", status="oom"),
    )
    assert (
        "F trains tiny at 1,000 tokens/s a rank, 2.00 times Naive: it is the fastest that fits (95% confidence)."
        in said
    )
    assert "Significantly slower: Naive." in said
    assert "Out of memory: Z2." in said


def test_a_tie_is_no_winner(make_run):
    said = sentences(make_run("Naive", metrics=rate(1000, 2, 5)), make_run("F", metrics=rate(1001, 2, 5)))
    assert "the lead is not statistically certain" in said
    assert "Equally fast within 5%: Naive." in said
    assert "Significant" not in said


def test_noise_is_named_as_noise(make_run):
    said = sentences(make_run("Naive", metrics=rate(1000, 200, 3)), make_run("F", metrics=rate(1200, 200, 3)))
    assert "No significant difference from it: Naive." in said


def test_single_processes_are_not_judged(make_run):
    said = sentences(make_run("Naive", metrics=rate(1000)), make_run("F", metrics=rate(3000)))
    assert "the lead is not statistically certain" in said
    assert "Lower in the one process that was measured of each" in said
    assert "measure.repeats=3 tells more" in said


def test_an_unstable_measurement_is_not_judged(make_run):
    bad = Stability(verdict="unstable", reasons=["contention: others took 3 cores"])
    said = sentences(
        make_run("Naive", metrics=rate(1000, 1, 3), stability=bad), make_run("F", metrics=rate(3000, 1, 3))
    )
    assert "Significantly slower" not in said
    assert "not judged" in said
    assert "F trains tiny at 1,500 tokens/s a rank: highest mean of 2; the lead is not statistically certain." in said
    assert "times Naive" not in said


def test_an_unstable_measurement_of_one_process_has_no_ratio_either(make_run):
    bad = Stability(verdict="unstable", reasons=["GPU 0 throttled (heat)"])
    said = sentences(make_run("Naive", metrics=rate(1000), stability=bad), make_run("F", metrics=rate(3000)))
    assert "times Naive" not in said
    assert "Lower, but not judged, because their measurement or that of the first is unstable: Naive." in said


def test_of_many_runs_the_first_is_not_called_the_fastest_unless_all_were_compared(make_run, monkeypatch):
    monkeypatch.setattr("llmexp.report.page.answer.MOST_COMPARED", 1)
    runs = [make_run(method, metrics=rate(mean, 1, 5)) for method, mean in (("F", 3000), ("R", 2000), ("Z2", 1000))]
    said = sentences(*runs)
    assert "highest mean of 3; the lead is not statistically certain" in said
    assert "Lower still and not compared one by one: 1 more." in said


def test_one_run_is_beside_no_other(make_run):
    assert "the only one that was measured" in sentences(make_run("F", metrics=rate(1000)))


def test_all_out_of_memory_has_no_winner(make_run):
    said = sentences(make_run("F", status="oom"), make_run("R", status="oom"))
    assert said.startswith("None of 2 runs was measured to its end.")
    assert "Out of memory: F, R." in said
    assert "fastest" not in said


@dataclass
class Measured:
    """As much of a row as the statistics read."""

    rate: Metric
    stability: Stability | None = None


def table(truths: list[float], repeats: int, deviation: float, chance: random.Random) -> list[Measured]:
    rows = []
    for truth in truths:
        values = [truth * (1 + chance.gauss(0, deviation)) for _ in range(repeats)]
        rows.append(Measured(Metric(mean=fmean(values), std_between_repeats=stdev(values), n=repeats)))
    return sorted(rows, key=lambda row: -row.rate.mean)


def wrong(repeats: int, methods: int) -> float:
    """The share of tables of equal methods in which something is called significantly slower."""
    chance = random.Random(7)
    found = [beside_best(table([1000.0] * methods, repeats, 0.03, chance)) for _ in range(TABLES)]
    return sum(any(one.verdict == "slower" for one in each) for each in found) / TABLES


@pytest.mark.parametrize(("repeats", "methods"), [(3, 6), slow(5, 6), slow(3, 2)])
def test_of_tables_of_equal_methods_at_most_one_in_twenty_calls_any_slower(repeats: int, methods: int):
    # Three standard errors of a share of 5 % in TABLES are 3.8 %.
    assert wrong(repeats, methods) <= 0.05 + 0.038


def test_a_difference_of_a_tenth_is_found_with_five_repeats_of_one_percent():
    chance = random.Random(8)
    found = [beside_best(table([1000.0, 1000.0, 1100.0], 5, 0.01, chance)) for _ in range(TABLES)]
    assert sum(all(one.verdict == "slower" for one in each) for each in found) / TABLES > 0.95


def test_a_run_that_did_another_training_is_never_the_fastest(trained):
    speeds = {"Naive": 1000, "R": 900}
    runs = [trained([6.0, 5.0], method=method, metrics=rate(mean, 4, 5)) for method, mean in speeds.items()]
    broken = trained([6.0, 6.0], method="F", update=0.0, metrics=rate(9000, 4, 5))
    said = sentences(*runs, broken)
    assert "Naive trains tiny at 1,000 tokens/s, 1.11 times R: it is the fastest of the 2 that" in said
    why = "the losses of the first steps are up to 20.00% apart"
    assert f"because runs that were asked for the same training did not do it ({why}): F." in said


def test_of_two_that_disagree_neither_is_the_fastest(trained):
    one, other = (
        trained([6.0, 5.0], metrics=rate(1000, 4, 5)),
        trained([6.0, 6.0], method="F", metrics=rate(9000, 4, 5)),
    )
    report = build_report([one, other]).sections[0]
    (said,) = report.answers
    assert said.startswith("Not compared, because runs that were asked for the same training did not do it")
    assert said.endswith(": Naive, F.")
    assert report.leaders == [said]
    assert not [line for line in report.legend if "slower than Naive" in line]


def test_of_several_groups_no_sentence_stands_twice(make_run):
    runs = [
        make_run(method, metrics=rate(mean, 4, 5), parallelism__dp=ranks)
        for ranks in (1, 2)
        for method, mean in (("Naive", 1000), ("F", 2000))
    ]
    said = build_report(runs).sections[0].answers
    assert sum("on cpu" in line for line in said) == 2
    assert len(set(said)) == len(said)
