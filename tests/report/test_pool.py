from __future__ import annotations

from statistics import fmean, stdev

import pytest

from llmexp.errors import ConfigError
from llmexp.record.result import Metric
from llmexp.report.baseline import Measured
from llmexp.report.pool import pool
from llmexp.training.trained_run import TrainedRun

VALUES = (101.0, 99.0, 104.0, 97.0, 100.0, 92.0)


def run(*values: float, **changes: object) -> Measured:
    n = len(values)
    rate = Metric(mean=fmean(values), std_between_repeats=stdev(values) if n > 1 else None, n=n)
    settings = {"model.name": "tiny", "method": "F"}
    said = {"settings": settings, "work": {"tokens": "4096"}, "environment": {}, "state": "success"}
    return Measured(**said | {"rate": "tokens_per_s", "metrics": {"tokens_per_s": rate}} | changes)


@pytest.mark.parametrize("cuts", [(1, 2, 3, 4, 5), (2, 5), (3,), ()])
def test_repeats_in_several_runs_say_what_they_say_in_one(cuts: tuple[int, ...]) -> None:
    parts = [VALUES[start:end] for start, end in zip((0, *cuts), (*cuts, len(VALUES)), strict=True)]
    found = pool([run(*part) for part in parts]).metrics["tokens_per_s"]
    assert (found.mean, found.std_between_repeats) == pytest.approx((fmean(VALUES), stdev(VALUES)))
    assert found.n == len(VALUES)


def test_a_single_repeat_has_no_deviation() -> None:
    assert pool([run(100.0)]).metrics["tokens_per_s"] == Metric(mean=100.0, n=1)


def test_repeats_of_another_training_are_not_pooled() -> None:
    known = {"requested": {}, "parameters_in": "fp32", "losses": [6.0], "sequences": ["0a"]}
    did = [TrainedRun.model_validate(known | {"largest_update": update}) for update in (1e-3, 0.0)]
    with pytest.raises(ConfigError, match="two runs of tiny F did not do the same training: the first step changes"):
        pool([run(100.0, trained=one) for one in did])


def test_a_run_that_failed_adds_no_repeat() -> None:
    found = pool([run(100.0), run(90.0, state="failed"), run(102.0)])
    assert (found.metrics["tokens_per_s"].mean, found.metrics["tokens_per_s"].n) == (101.0, 2)
    assert pool([run(100.0, state="failed", reason="a rank died")]).reason == "a rank died"


def test_what_disturbed_one_run_disturbs_the_whole() -> None:
    found = pool([run(100.0), run(100.0, unstable="contention"), run(100.0, unstable="contention"), run(100.0)])
    assert found.unstable == "contention"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"work": {"tokens": "2048"}}, "tokens, 4096 and 2048"),
        ({"environment": {"distributions.torch": "9.9"}}, "distributions.torch, not known and 9.9"),
    ],
    ids=["work", "environment"],
)
def test_what_did_not_do_the_same_in_the_same_environment_is_not_pooled(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=f"--pool: runs of tiny F differ in {said}: name only those that agree"):
        pool([run(100.0), run(100.0, **changes)])
