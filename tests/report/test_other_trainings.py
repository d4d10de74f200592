from llmexp.report.other_trainings import other_trainings
from llmexp.report.table import build_report


def told(*runs) -> dict[str, str]:
    """The runs' sweeps, each with why it does not compare."""
    return {path.parent.name: why for path, why in other_trainings(build_report(runs).rows).items()}


def named(trained, name, losses=(6.0, 5.0), **changes):
    return trained(losses, sweep__name=name, **changes)


def test_one_among_several_that_agree_is_the_odd_one(trained):
    runs = [named(trained, "a"), named(trained, "b", method="F"), named(trained, "c", losses=(6.0, 6.0))]
    said = {"c": "the losses of the first steps are up to 20.00% apart"}
    assert told(*runs) == said
    assert set(told(*runs[::-1])) == {"c"}


def test_of_two_nobody_knows_which_is_right(trained):
    assert set(told(named(trained, "a"), named(trained, "b", update=0.0))) == {"a", "b"}


def test_runs_that_agree_or_were_asked_for_others_or_cannot_tell_are_not_odd(trained):
    assert told(named(trained, "a"), named(trained, "b", method="R")) == {}
    assert told(named(trained, "a"), named(trained, "b", losses=(9.0, 9.0), seed=1)) == {}
    assert told(named(trained, "a"), named(trained, "b", read=None)) == {}
    assert told(named(trained, "a"), named(trained, "b", losses=())) == {}
