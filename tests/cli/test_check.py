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
        ("measure", "steps", "20", "measure.steps=20: must be a whole number of at least 1"),
        ("measure", "profile", 1, "measure.profile=1: must be true or false"),
        ("optimizer", "implementation", "jax", "optimizer.implementation=jax: must be one of torch, deepspeed"),
        (
            "optimizer",
            "betas",
            None,
            "optimizer.betas is missing, and optimizer=adamw, which sets no optimizer.target, is AdamW: "
            "set optimizer.betas=",
        ),
        (
            "optimizer",
            "target",
            "a.B",
            "and optimizer.target=a.B is another class: put it into optimizer.options, as optimizer=sgd does",
        ),
        ("optimizer", "target", "B", "optimizer.target=B: must be a dotted path, such as torch.optim.SGD"),
        (
            "optimizer",
            "options",
            {"k": 5},
            "optimizer.options={k:5} belongs to optimizers with optimizer.target, and optimizer=adamw, which sets no",
        ),
        ("data", "seq_len", True, "data.seq_len=true: must be a whole number of at least 2"),
        ("optimizer", "betas", [0.9], "optimizer.betas=[0.9]: must be a list of 2, each a number"),
        (
            "hardware",
            "peak_flops_per_s",
            {"int4": 1e12},
            "hardware.peak_flops_per_s.int4=int4: must be one of fp32, tf32, bf16, fp16, fp8",
        ),
        (
            "hardware",
            "peak_flops_per_s",
            {"bf16": -1.0},
            "hardware.peak_flops_per_s.bf16=-1.0: must be a number above 0",
        ),
        (
            "hardware",
            "environment",
            {"A": 1},
            "hardware.environment.A=1: must be a text: write 'hardware.environment.A=\"1\"'",
        ),
        (
            "hardware",
            "environment",
            {1: "a"},
            "hardware.environment: 1 is no name: names begin with a letter, as in {name: value}",
        ),
        ("engine", "options", 4, "engine.options=4: must be a mapping, as in {name: value}"),
        ("adapter", "dropout", 1.0, "adapter.dropout=1.0: must be a number of at least 0 and below 1"),
        ("node", "port", 0, "node.port=0: must be a whole number of at least 1 and of at most 65535, or null"),
        ("data", "seq_len", 1, "data.seq_len=1: must be a whole number of at least 2"),
        ("batch", "mikro", 1, "unknown key 'batch.mikro': did you mean batch.micro?"),
        ("model", "num_kv_heads", 3, "model.num_heads=4 is not a multiple of model.num_kv_heads=3"),
        ("model", "hidden_size", None, "model.hidden_size is missing"),
        ("model", "architecture", "gpt", "model.architecture=gpt: must be one of llama, qwen3, mixtral, mistral, phi3"),
        (
            "model",
            "architecture",
            "mixtral",
            "model.num_experts is missing, and model=tiny is mixtral: set model.num_experts=",
        ),
        ("model", "layers", 3, "unknown key 'model.layers': did you mean model.num_layers?"),
        ("runtime", "name", 3, "runtime.name=3: must be a text: write 'runtime.name=\"3\"'"),
        (
            "runtime",
            "container",
            "podman",
            "runtime.container=podman belongs to runtime=apptainer or runtime=docker, and runtime=here is llmexp's own",
        ),
        (
            "model",
            "hidden_size",
            130,
            "model.hidden_size=130 is not a multiple of model.num_heads=4: set model.head_dim=<size>",
        ),
    ],
)
def test_the_error_names_field_value_and_choices(section, key, value, message, container):
    container.setdefault(section, {})[key] = value
    with pytest.raises(ConfigError) as raised:
        validate(container)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_key_says_how_to_set_it(container):
    del container["measure"]["steps"]
    with pytest.raises(ConfigError, match=r"^measure.steps is missing: set measure.steps=<value>$"):
        validate(container)


@pytest.mark.parametrize(
    ("section", "given", "message"),
    [
        ("data", {"seq_len": 8}, "data.name is missing: set data.name=<value>"),
        (
            "data",
            ["text"],
            "data=[text]: must be a section with name, seq_len, seq_len_schedule, tokenizer, pack, files",
        ),
        (
            "runtime",
            "here",
            "runtime=here: must be a section with name, modules, setup, environment, python, container",
        ),
        (
            "runtime",
            {"name": "odd", "container": "docker"},
            "runtime.image is missing, and runtime=odd is a container of docker: set runtime.image=",
        ),
        (
            "runtime",
            {"name": "odd", "container": "lxc", "image": "a"},
            "runtime.container=lxc: must be one of apptainer, docker",
        ),
        (
            "data",
            {"name": "instructions", "seq_len": 8, "path": 3},
            "data.path=3: must be a text, or null: write 'data.path=\"3\"'",
        ),
        ("data", {"name": "hf", "seq_len": 8, "path": 3}, "data.path=3: must be a text: write 'data.path=\"3\"'"),
    ],
)
def test_a_section_of_one_of_several_types_is_checked_as_the_one_that_it_is(section, given, message, container):
    container[section] = given
    with pytest.raises(ConfigError) as raised:
        validate(container)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_keys_are_all_dotted_names():
    found = keys()
    assert len(found) == len(set(found))
    assert {"method", "batch", "batch.micro", "hardware.peak_flops_per_s"} <= set(found)
    for key in found:
        check_key(key)


def test_below_free_mappings_any_key_goes():
    check_key("engine.options.zero_optimization.stage")
    check_key("hardware.environment.NCCL_DEBUG")


@pytest.mark.parametrize(
    ("key", "guess"), [("btach.micro", "batch"), ("tp", "parallelism.tp"), ("precision.mastr", "precision.master")]
)
def test_an_unknown_key_names_the_nearest(key, guess):
    with pytest.raises(ConfigError, match=rf"did you mean {guess}\?"):
        check_key(key)
