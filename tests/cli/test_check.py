from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from llmexp.cli.check import check_key, keys, validate
from llmexp.errors import ConfigError


@pytest.fixture
def container() -> dict[str, Any]:
    from llmexp.cli.app import CONFIG, hydra_app

    with hydra_app():
        from hydra import compose

        return OmegaConf.to_container(compose(CONFIG), resolve=True)


def test_the_defaults_are_valid_and_frozen(container):
    config = validate(container)
    with pytest.raises(Exception, match="frozen"):
        config.seed = 1


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("measure", "steps", "20", "measure.steps=20: input should be a valid integer"),
        ("measure", "profile", 1, "measure.profile=1: input should be a valid boolean"),
        ("optimizer", "implementation", "jax", "optimizer.implementation=jax: input should be 'torch', 'deepspeed'"),
        ("optimizer", "betas", None, "optimizer.betas is missing: set optimizer.betas=<value>, or optimizer.target"),
        ("optimizer", "target", "a.B", "optimizer.betas is AdamW's: with optimizer.target=a.B put it into optimizer.options"),
        ("optimizer", "target", "B", "optimizer.target=B: string should match pattern"),
        ("optimizer", "options", {"k": 5}, "optimizer.options says something of optimizer.target, which is not set"),
        ("data", "seq_len", 1, "data.seq_len=1: input should be greater than or equal to 2"),
        ("batch", "mikro", 1, "unknown key 'batch.mikro': did you mean batch.micro?"),
        ("model", "num_kv_heads", 3, "model.num_heads=4 is not a multiple of model.num_kv_heads=3"),
        ("model", "hidden_size", None, "model.hidden_size is missing"),
    ],
)
def test_the_error_names_field_value_and_choices(section, key, value, message, container):
    container[section][key] = value
    with pytest.raises(ConfigError) as raised:
        validate(container)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_key_says_how_to_set_it(container):
    del container["measure"]["steps"]
    with pytest.raises(ConfigError, match=r"^measure.steps is missing: set measure.steps=<value>$"):
        validate(container)


def test_keys_are_all_dotted_names():
    found = keys()
    assert len(found) == len(set(found))
    assert {"method", "batch", "batch.micro", "hardware.peak_flops_per_s"} <= set(found)
    for key in found:
        check_key(key)


def test_below_free_mappings_any_key_goes():
    check_key("engine.options.zero_optimization.stage")
    check_key("hardware.environment.NCCL_DEBUG")


@pytest.mark.parametrize(("key", "guess"), [("btach.micro", "batch"), ("tp", "parallelism.tp"), ("precision.mastr", "precision.master")])
def test_an_unknown_key_names_the_nearest(key, guess):
    with pytest.raises(ConfigError, match=rf"did you mean {guess}\?"):
        check_key(key)
