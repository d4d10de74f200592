"""The degrees that a model and a machine leave open."""

from __future__ import annotations

from llmexp.training.advice.layouts import Layout, layouts
from tests.planning import make_plan

ALL = ("dp", "tp", "pp", "cp", "ep")


def layouts_of(*words: str, fixed: tuple[str, ...] = ()) -> list[Layout]:
    return list(layouts(make_plan(*words, "engine=megatron").config, ALL, fixed))


def test_degrees_divide_heads_layers_and_devices() -> None:
    found = layouts_of("model=70b", "hardware=h100", "hardware.nodes=8", "data.seq_len=4096")
    assert max(layout.tp for layout in found) == 8  # key-value heads, and devices of a node
    assert {layout.pp for layout in found} == {1, 2, 4, 8, 16}  # of 80 layers
    assert {layout.cp for layout in found} == {1}  # sequences are short
    assert all(64 % (layout.tp * layout.pp) == 0 for layout in found)
    assert any(layout.virtual_stages == 10 and layout.pp == 8 for layout in found)


def test_long_sequences_are_cut() -> None:
    words = ("model=llama3-8b", "hardware=h100", "data.seq_len=8192")
    assert {layout.cp for layout in layouts_of(*words)} == {1, 2}


def test_experts_are_shared_out() -> None:
    found = layouts_of("model=mixtral", "hardware=h100", "data.seq_len=2048")
    assert {layout.ep for layout in found} == {1, 2, 4, 8}
    assert all(8 // (layout.tp * layout.pp) % layout.ep == 0 for layout in found)


def test_experts_of_a_family_are_shared_out_and_nothing_else_is_cut() -> None:
    words = ("hardware=h100", "data.seq_len=2048")
    found = [*layouts(make_plan(*words, "model=qwen3-30b-a3b", "engine=torch").config, ALL, ())]
    assert {layout.ep for layout in found} == {1, 2, 4, 8}
    assert {(layout.tp, layout.pp, layout.cp) for layout in found} == {(1, 1, 1)}
    dense = [*layouts(make_plan(*words, "model=olmo3-7b", "engine=torch").config, ALL, ())]
    assert dense == [Layout()]


def test_whole_experts_are_shared_out_over_tp_too() -> None:
    words = ("model=mixtral", "hardware=h100", "data.seq_len=2048")
    found = [*layouts(make_plan(*words, "engine=megatron").config, (*ALL, "etp"), ())]
    whole = [layout for layout in found if layout.etp == 1]
    assert max(layout.tp * layout.ep for layout in whole) == 64
    assert all(8 // layout.pp % layout.ep == 0 for layout in whole)
    assert Layout(4, 1, 1, 2, etp=1).words(())["parallelism.etp"] == "1"
    assert {layout.etp for layout in layouts_of(*words)} == {None}, "an engine without etp"


def test_ends_count_as_layers_where_the_layers_alone_make_no_even_stages() -> None:
    words = ("model=70b", "model.num_layers=78", "hardware=h100", "hardware.nodes=8", "data.seq_len=4096")
    config = make_plan(*words, "engine=megatron").config
    found = {layout.pp: layout for layout in layouts(config, (*ALL, "ends_as_layers"), ())}
    assert {pp: layout.ends_as_layers for pp, layout in found.items()} == {
        1: None,
        2: None,
        4: "both",
        8: "both",
        16: "both",
    }
    assert found[8].virtual_stages == 10
    assert {layout.pp for layout in layouts_of(*words)} == {1, 2}
    fixed = layouts(config, (*ALL, "ends_as_layers"), ("parallelism.ends_as_layers",))
    assert {layout.pp for layout in fixed} == {1, 2}


def test_a_fixed_degree_stays_and_is_not_said_again() -> None:
    words = ("model=70b", "hardware=h100", "hardware.nodes=8", "parallelism.tp=4")
    found = layouts_of(*words, fixed=("parallelism.tp",))
    assert {layout.tp for layout in found} == {4}
    assert Layout(4, 2).words(("parallelism.tp",)) == {"parallelism.pp": "2", "parallelism.sequence": "true"}


def test_degrees_that_the_engine_lacks_stay_one() -> None:
    config = make_plan("model=70b", "hardware=h100").config
    assert list(layouts(config, ("dp",), ())) == [Layout()]
