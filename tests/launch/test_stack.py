from __future__ import annotations

from llmexp.launch.stack import contributors, stack_digest


def test_a_class_by_name_brings_its_distribution_into_the_stack(tiny_plan) -> None:
    own = tiny_plan("F+Z2")
    named = tiny_plan("F+Z2", model__target="omegaconf.OmegaConf")
    assert contributors(own) == []
    assert contributors(named) == ["omegaconf"]
    assert stack_digest(named) != stack_digest(own)
    assert stack_digest(own) == stack_digest(tiny_plan("R"))


def test_one_distribution_is_named_once(tiny_plan) -> None:
    target = {"name": "mine", "target": "omegaconf.OmegaConf", "lr": 1.0}
    assert contributors(tiny_plan(optimizer=target, model__target="omegaconf.DictConfig")) == ["omegaconf"]
