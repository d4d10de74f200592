"""The models of conf/model that are given by the fields of a config.json."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from omegaconf import OmegaConf
from planning import make_plan
from pydantic import TypeAdapter

from llmexp.errors import ConfigError
from llmexp.inputs.architecture.given import FIELDS
from llmexp.inputs.architecture.reading import READERS, architecture_of
from llmexp.schema import FamilyModel, ModelConfig
from llmexp.schema.model import FamilyName
from llmexp.training.predict import unpredicted

CONF = Path(__file__).parents[2] / "conf" / "model"
READ = {path.stem: OmegaConf.to_container(OmegaConf.load(path)) for path in CONF.glob("*.yaml") if path.stem != "hf"}
GIVEN = {name: TypeAdapter(ModelConfig).validate_python(read) for name, read in READ.items() if "config" in read}
# Parameters as checkpoints or their makers count them, and what a token meets of them, where that is published.
PUBLISHED: dict[str, tuple[float, float | None, float]] = {
    # arXiv 2505.09388, table 2: 30.5B, of which 3.3B.
    "qwen3-30b-a3b": (30.5e9, 3.3e9, 0.02),
    # The checkpoint of Qwen3-Coder-Next, the same architecture, has 79,674,391,296 elements.
    "qwen3-next-80b-a3b": (79_674_391_296, 3_874_929_408, 0.0),
    # arXiv 2412.19437, abstract: 671B, of which 37B.
    "deepseek-v3": (671e9, 37e9, 0.02),
    # arXiv 2502.16982: 16B, of which 3B.
    "moonlight-16b-a3b": (16e9, 3e9, 0.03),
    # arXiv 2508.10925, table 1: 20.91B. Its 3.61B active leave the embedding out.
    "gpt-oss-20b": (20.91e9, 3.61e9 + 201088 * 2880, 0.01),
    # arXiv 2503.19786, table 1: 302M of the embedding and 698M others.
    "gemma3-1b": (1.0e9, None, 0.001),
    # The model card: 7B, as OLMo 2 7B (arXiv 2501.00656) has with another vocabulary: 7.3e9.
    "olmo3-7b": (7.3e9, None, 0.01),
    # arXiv 2405.21060, table 10.
    "mamba2-2.7b": (2.7e9, None, 0.01),
    # This project's own, as a run that loaded it counted; a token meets two of eight experts of 3 x 128 x 128 weights.
    "tiny-experts": (1_906_048, 1_906_048 - 4 * 6 * 3 * 128 * 128, 0.0),
}


def test_every_given_model_has_a_published_count():
    assert set(GIVEN) == set(PUBLISHED)


@pytest.mark.parametrize("name", GIVEN)
def test_a_given_model_has_its_published_size(name: str):
    made, (parameters, active, rel) = architecture_of(GIVEN[name]), PUBLISHED[name]
    assert (GIVEN[name].name, bool(GIVEN[name].source)) == (name, True)
    assert made.parameters == pytest.approx(parameters, rel=rel or 1e-12)
    assert made.active_parameters == pytest.approx(active or made.parameters, rel=rel or 1e-12)


@pytest.fixture
def newer() -> None:
    """Skip with versions of transformers that do not tell which fields a class has."""
    from transformers import PreTrainedConfig

    if not is_dataclass(PreTrainedConfig):
        pytest.skip("configurations of this version of transformers are no dataclasses")


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("name", GIVEN)
def test_transformers_builds_as_many_parameters(name: str):
    import torch
    from transformers import AutoModelForCausalLM

    from llmexp.launchers.models.building import configuration

    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(configuration(GIVEN[name]))
    assert sum(parameter.numel() for parameter in built.parameters()) == architecture_of(GIVEN[name]).parameters


@pytest.mark.parametrize("hardware", ["h100", "h200"])
@pytest.mark.parametrize("name", GIVEN)
def test_a_plan_answers(name: str, hardware: str):
    plan = make_plan(f"model={name}", f"hardware={hardware}", "method=R+Z3")
    made = architecture_of(GIVEN[name])
    assert (plan.parameters, plan.active_parameters, plan.layers) == (
        made.parameters,
        made.active_parameters,
        made.words,
    )
    assert plan.flops_per_token == pytest.approx(made.flops_per_token(plan.config.data.seq_len))
    assert plan.memory is not None
    assert plan.skip is None
    assert plan.predicted or unpredicted(plan).startswith("no rate of layers of")


def test_the_families_are_those_that_are_read():
    sized = {"llama", "qwen3", "mixtral"}
    assert set(get_args(FamilyName)) == set(READERS) - sized


@pytest.mark.usefixtures("newer")
def test_the_known_fields_are_those_of_transformers():
    from transformers import CONFIG_MAPPING, PreTrainedConfig

    shared = {field.name for field in fields(PreTrainedConfig)}
    classes = [CONFIG_MAPPING[family] for family in get_args(FamilyName)]
    assert {field.name for each in classes for field in fields(each)} - shared == FIELDS


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("model.config.num_hiden_layers=3", "did you mean num_hidden_layers?"),
        ("model.config.rope_theta=1e6", "rope_theta and rope_scaling are part of rope_parameters"),
        ("model.config.hidden_size=x", "hidden_size='x' is no positive integer"),
        ("model.config.num_experts_per_tok=900", "num_experts_per_tok=900 of 128 experts"),
        ("model.config.moe_intermediate_size=null", "has no moe_intermediate_size"),
        ("model.architecture=qwen4", "must be one of llama, qwen3, mixtral, mistral"),
        ("model.num_layers=2", "set model.config.num_hidden_layers=2"),
    ],
)
def test_what_makes_no_model_is_said_in_one_line(word: str, said: str):
    with pytest.raises(ConfigError) as caught:
        make_plan("model=qwen3-30b-a3b", word)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("newer")
def test_a_field_of_another_family_is_refused_by_the_ranks():
    from llmexp.launchers.models.building import configuration

    model = GIVEN["qwen3-30b-a3b"]
    assert isinstance(model, FamilyModel)
    other: dict[str, Any] = {"config": model.config | {"conv_kernel": 4}}
    with pytest.raises(ConfigError, match=r"model\.config\.conv_kernel is no field of transformers' Qwen3MoeConfig"):
        configuration(model.model_copy(update=other))


def test_gpt_oss_is_not_planned_with_flash_attention():
    skip = make_plan("model=gpt-oss-20b", "method=F", "data.seq_len=128").skip
    assert skip
    assert "attention sinks" in skip.reason


def test_deepseek_v3_is_not_planned_with_flash_attention_on_a_cpu():
    skip = make_plan("model=deepseek-v3", "method=F", "hardware=cpu").skip
    assert skip
    assert "takes values only as wide as keys" in skip.reason
    assert make_plan("model=deepseek-v3", "method=F", "hardware=h100").skip is None


def test_mamba_is_not_planned_with_flash_attention():
    skip = make_plan("model=mamba2-2.7b", "method=F").skip
    assert skip
    assert "has no attention" in skip.reason


def test_a_given_model_is_not_served():
    with pytest.raises(ConfigError, match=r"task=serve takes a folder's own weights"):
        make_plan("task=serve", "model=gemma3-1b", "engine=vllm", "hardware=h100")
