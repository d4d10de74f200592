from llmexp.sweep.ab.turns import blocks


def orders(rounds: int, rows: int) -> dict[tuple[int, int], str]:
    """The measurements of each block in their order; c is the control."""
    return {
        (block.round, block.row): "".join(turn.measures[0] for turn in block.turns)
        for block in blocks(rounds, rows, control=2)
    }


def test_each_side_goes_first_in_every_other_round_of_a_row_and_for_every_other_row_of_a_round() -> None:
    assert orders(2, 3) == {
        (1, 1): "ab",
        (1, 2): "cba",
        (1, 3): "ab",
        (2, 1): "ba",
        (2, 2): "abc",
        (2, 3): "ba",
    }


def test_a_linear_drift_favors_neither_side_over_an_even_number_of_rounds() -> None:
    found = {"a": 0, "b": 0, "c": 0}
    for place, turn in enumerate(turn for block in blocks(4, 3, control=2) if block.row == 2 for turn in block.turns):
        found[turn.measures[0]] += place
    assert found["a"] == found["b"] == found["c"]


def test_every_turn_has_a_sweep_of_its_own() -> None:
    turns = [turn for block in blocks(5, 4, control=1) for turn in block.turns]
    assert len({turn.sweep for turn in turns}) == len(turns) == 5 * (2 * 4 + 1)
