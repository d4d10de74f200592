import os

import pytest

from llmexp.errors import ConfigError
from llmexp.sweep.ab.measuring import TurnSession, held, is_whole
from llmexp.sweep.ab.turns import A, B, SideTurn, TurnBlock

TURNS = SideTurn(1, 1, A), SideTurn(1, 1, B)


def test_of_the_runs_that_a_turn_has_measured_the_last_counts(make_run, tmp_path):
    runs = {method: make_run(method, sweep__name=TURNS[0].sweep) for method in ("Naive", "F", "R")}
    for age, method in enumerate(("F", "Naive", "R")):
        os.utime(runs[method].path, (1000 - age, 1000 - age))
    found = TurnSession({}, [], 1, tmp_path).run_of(TURNS[0])
    assert found
    assert found.path == runs["F"].path


def test_a_block_is_whole_if_all_of_its_turns_were_measured_to_their_end(make_run, tmp_path):
    session, block = TurnSession({}, [], 1, tmp_path), TurnBlock(1, 1, TURNS)
    make_run("Naive", sweep__name=TURNS[0].sweep)
    assert not is_whole(session, block)
    make_run("Naive", status="failed", sweep__name=TURNS[1].sweep)
    assert not is_whole(session, block)
    make_run("Naive", sweep__name=TURNS[1].sweep)
    assert is_whole(session, block)


def test_two_commands_do_not_measure_into_one_folder(tmp_path):
    with (
        held(TurnSession({}, [], 1, tmp_path)),
        pytest.raises(ConfigError, match="is being measured by process"),
        held(TurnSession({}, [], 1, tmp_path)),
    ):
        pass


def test_what_was_measured_before_stays_with_its_own_sides(tmp_path):
    with held(TurnSession({}, [], 1, tmp_path, identity={"a": "one", "b": "two"})):
        pass
    with (
        pytest.raises(ConfigError, match=r"turns of another comparison \(other b\)"),
        held(TurnSession({}, [], 1, tmp_path, identity={"a": "one", "b": "three"})),
    ):
        pass
