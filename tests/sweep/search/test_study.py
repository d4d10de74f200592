from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.sweep.search.space import Dimension, SearchChoices, SearchRange
from llmexp.sweep.search.study import SharedStudy
from llmexp.sweep.search.trial import AskedTrial, SearchGoal, SearchOptions, TrialEnd

GOAL = SearchGoal("loss", "minimize")
LR: list[Dimension] = [SearchRange("optimizer.lr", 1e-5, 1e-1, log=True)]
GRID: list[Dimension] = [SearchChoices("a", ("x", "y")), SearchRange("b", 1, 5, 2, whole=True)]
Open = Callable[..., SharedStudy]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def opened(space: list[Dimension] = LR, steps: int = 40, **asked: object) -> SharedStudy:
        return SharedStudy(tmp_path / "s", {"space": repr(space), **asked}, GOAL, space, steps)

    return opened


def asked(study: SharedStudy, trials: int = 99, **options: object) -> AskedTrial:
    found = study.ask(SearchOptions(trials, **options))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_points_that_can_be_counted_are_tried_once_each_and_then_there_are_no_more(opened: Open) -> None:
    study = opened(GRID)
    with study.driving():
        points = []
        while trial := study.ask(SearchOptions(99)):
            points.append(tuple(trial.point.values()))
            study.tell(trial, TrialEnd("complete", 1.0))
    assert sorted(points) == [(a, b) for a in "xy" for b in ("1", "3", "5")]


def test_two_drivers_have_different_trials_and_stop_at_the_number_of_both(opened: Open) -> None:
    one, other = opened(), opened()
    with one.driving(), other.driving():
        trials = [asked(study, 4) for study in (one, other, one, other)]
        assert [trial.number for trial in trials] == [0, 1, 2, 3]
        assert len({trial.point["optimizer.lr"] for trial in trials}) == 4
        assert one.ask(SearchOptions(4)) is None
        assert (one.others_at_work(), one.has_unfinished()) == (4, False)


def test_a_trial_whose_driver_has_died_is_told_and_its_point_tried_again(opened: Open) -> None:
    dead, living = opened(), opened()
    with dead.driving():
        first = asked(dead)
    with living.driving():
        assert living.has_unfinished()
        again = asked(living, 1)
        assert (again.number, again.point) == (1, first.point)
        living.tell(again, TrialEnd("complete", 2.0))
        assert living.ask(SearchOptions(1)) is None
    assert [trial.standing for trial in living.trials()] == ["died", "complete"]
    assert living.trials()[0].reason == "its driver ended before it did"


def test_a_driver_that_was_taken_for_dead_changes_nothing_any_more(opened: Open) -> None:
    slow, other = opened(), opened()
    with slow.driving():
        first = asked(slow)
    with other.driving():
        asked(other)
        slow.tell(first, TrialEnd("complete", 1.0))
        assert [trial.standing for trial in other.trials()] == ["died", "running"]


def test_a_point_whose_drivers_die_three_times_is_given_up(opened: Open) -> None:
    points = []
    for _ in range(4):
        study = opened()
        with study.driving():
            points.append(asked(study).point["optimizer.lr"])
    assert len(set(points[:3])) == 1
    assert points[3] != points[0]


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_a_loss_above_that_of_others_is_worse_and_one_below_is_not(opened: Open, pruner: str) -> None:
    study = opened(steps=27)
    with study.driving():
        for _ in range(9):
            trial = asked(study, pruner=pruner)
            for step in (9, 18, 27):
                study.is_worse(trial, step, 3.0)
            study.tell(trial, TrialEnd("complete", 3.0))
        good, bad = asked(study, pruner=pruner), asked(study, pruner=pruner)
        assert not any(study.is_worse(good, step, 2.0) for step in (9, 18))
        assert any(study.is_worse(bad, step, 4.0) for step in (9, 18))


def test_trials_out_of_memory_are_told_as_worse_than_any_other(opened: Open) -> None:
    study = opened()
    with study.driving():
        trial = asked(study)
        study.tell(trial, TrialEnd("oom", reason="no memory"))
    [found] = study.trials()
    assert (found.standing, found.value, found.reason) == ("oom", None, "no memory")


def test_another_search_is_refused_with_what_differs(opened: Open) -> None:
    opened(words=["seed=1"])
    opened(words=["seed=1"])
    with pytest.raises(ConfigError, match=r"has another search, whose words is \[\"seed=1\"\] and not \[\"seed=2\"\]"):
        opened(words=["seed=2"])
