"""What can be asked of task=compress: one line for what cannot be, before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compressed_runs import compress_plan, trained_folder
from planning import make_plan

from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.compress.task import COMPRESS
from llmexp.errors import ConfigError
from llmexp.registry import get_engine


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"model={trained_folder(tmp_path_factory.mktemp('models') / 'mine')}"


SMALL_GROUPS = "compress.group_size=16"
RECOVERS = "compress.recovery=all compress.recovery_steps=10"
REFUSED = {
    "compress=rtn": "compress.group_size=128 does not divide the inputs of model=mine, 64, 176: "
    "set compress.group_size=16, a divisor of it, or null",
    "compress=rtn compress.weights=int5": "compress.weights=int5: must be one of int2, int3, int4, int8, fp8, mxfp4",
    "compress=autoround compress.weights=fp8": "autoround writes int2 or int3 or int4 or int8: set one of these",
    "compress=rtn compress.activations=fp8_static": "beside int4 weights by rtn there is null or int8 or fp8: set",
    "compress=nvfp4 compress.activations=int8": "beside nvfp4 weights by rtn there is null or fp4",
    "compress=awq compress.activations=int8": "beside int4 weights by awq there is null",
    "compress=nvfp4 compress.group_size=128": "compress.group_size=128: of nvfp4, 16 weights share a scale",
    "compress=fp8 compress.group_size=128": "of fp8, the weights of an output channel share a scale",
    "compress=fp8 compress.symmetric=false": "compress.symmetric=false: fp8 weights have no zero points: set",
    f"compress=hqq {SMALL_GROUPS} compress.symmetric=true": "compress.symmetric=true: hqq searches for zero points",
    f"compress=hqq {SMALL_GROUPS} compress.activations=int8": "beside int4 weights by hqq there is null",
    f"compress=hqq {SMALL_GROUPS} compress.norm_steps=5": "compress.norm_steps=5: norms train where llm-compressor",
    "compress=hqq compress.weights=fp8": "compress.weights=fp8: hqq writes int2 or int3 or int4 or int8",
    "compress=w8a8 compress.norm_steps=5": "compress.norm_steps=5: no gradient passes activations that are rounded",
    "compress=rtn compress.smoothing=0.5": "compress.smoothing=0.5 belongs to compress.method=smoothquant",
    "compress=smoothquant compress.activations=null": "compress.method=smoothquant moves the range of activations",
    "compress=smoothquant compress.smoothing=null": "set compress.smoothing=0.5",
    f"compress=experts {SMALL_GROUPS}": "compress.layers=experts: model=mine has no experts: set compress.layers=all",
    "compress=autoround compress.layers=experts": "autoround takes all layers: choose compress.method=rtn or gptq",
    "compress=fp8 compress.layers=experts": "transformers loads experts of int2 or int3 or int4 or int8 weights",
    "compress=w8a8 compress.layers=experts": "without compress.activations: set one of these",
    "compress=sparsegpt_2of4 compress.sparsity=0.6": "compress.sparsity=0.6: two of four are 0.5",
    "compress=wanda compress.sparsity=1": "compress.sparsity=1",
    "compress=wanda compress.weights=int4": "compress.weights=int4 belongs to compress=rtn or compress=gptq",
    "compress=rtn compress.share=0.5": "compress.share=0.5 belongs to compress=mlp",
    "compress=layers compress.share=0.1": "compress.share=0.1 of 4 layers of model=mine takes 0, and some have to go "
    "and some to stay: choices are 0.25 to 0.75",
    "compress=heads compress.share=0.9": "0.9 of 2 groups of heads of model=mine takes 2",
    "compress=mlp compress.recovery=all": "compress.recovery=all and compress.recovery_steps=0",
    "compress=mlp compress.recovery_steps=5": "compress.recovery=none and compress.recovery_steps=5",
    "compress=rtn compress.recovery_shares_every=5": "compress.recovery_shares_every=5 belongs to compress=mlp",
    f"compress=mlp {RECOVERS} compress.recovery_domains={{a:[],b:conf}}": "compress.recovery_domains.a=[]: name files",
    f"compress=mlp {RECOVERS} compress.recovery_shares_every=3": "only compress.recovery_domains has shares",
    f"compress=mlp {RECOVERS} compress.recovery_domains={{1:docs,a:conf}}": "compress.recovery_domains: 1 is no name: ",
    f"compress=mlp {RECOVERS} compress.recovery_domains={{a:conf}}": "compress.recovery_domains=a: recovery mixes two",
    "compress=mlp compress.recovery_domains={a:conf,b:docs}": "and set compress.recovery=all, lora or norms",
    f"compress=mlp {RECOVERS} compress.recovery_domains={{a:conf,b:docs}}": "compress.recovery_shares_every=10: shares "
    "would never change in compress.recovery_steps=10: set fewer",
    f"compress=mlp {RECOVERS} compress.recovery_references={{a:2.0}}": "compress.recovery_references.a: there is no "
    "such domain: compress.recovery_domains has none",
    f"compress=mlp {RECOVERS} compress.recovery_shares_every=5 compress.recovery_domains={{a:nothere,b:docs}}": (
        "compress.recovery_domains: nothing matches nothere"
    ),
    "compress=layers text.files=[nothere]": "text.files: nothing matches nothere",
    "compress=layers text.tokenizer=./nothere": "text.tokenizer=./nothere: no such file or folder",
    "compress=layers method=F": "method belongs to task=pretrain or task=finetune",
    "compress=layers precision=fp32": "this task has no precision=: leave it out",
    "compress=lorax": "unknown compress 'lorax'",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(words: str, model: str) -> None:
    with pytest.raises(ConfigError) as refused:
        jobs_of(run_parser().parse_intermixed_args(["task=compress", "hardware=cpu", model, *words.split()]))
    assert REFUSED[words] in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("words", [(), ("model=tiny",), ("model=7b",), ("model=hf", "model.path=organization/name")])
def test_a_model_without_trained_weights_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"^task=compress needs trained weights: set model=<folder>$"):
        make_plan("task=compress", "hardware=cpu", *words)


EXPERTS = {"model_type": "qwen3_moe", "num_experts": 8, "moe_intermediate_size": 32}


def experts_folder(path: Path, **changed: Any) -> str:
    folder = trained_folder(path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | EXPERTS | changed))
    return f"model={folder}"


def test_experts_have_groups_of_their_own_sizes(tmp_path: Path) -> None:
    model = experts_folder(tmp_path / "experts", num_attention_heads=5)
    assert compress_plan(model, "compress=experts", "compress.group_size=32").skip is None
    with pytest.raises(ConfigError, match=r"inputs of model=experts, 32, 64: set compress\.group_size=32"):
        compress_plan(model, "compress=experts")
    with pytest.raises(ConfigError, match=r"inputs of model=experts, 32, 60, 64: set compress\.group_size=4"):
        compress_plan(model, "compress=rtn", "compress.group_size=32")


@pytest.mark.parametrize(
    ("changed", "inputs"),
    [
        ({"model_type": "mixtral", "moe_intermediate_size": None}, "64, 176"),
        ({"model_type": "qwen2_moe", "shared_expert_intermediate_size": 40}, "32, 40, 64"),
        ({"decoder_sparse_step": 2}, "32, 64, 176"),
        (
            {"model_type": "deepseek_v3", "n_shared_experts": 3, "v_head_dim": 20, "q_lora_rank": 24, "kv_lora_rank": 8}
            | {"first_k_dense_replace": 1},
            "8, 24, 32, 64, 80, 96, 176",
        ),
        ({"model_type": "qwen3_next", "linear_num_value_heads": 3, "linear_value_head_dim": 7}, "21, 32, 64"),
    ],
)
def test_each_family_of_experts_has_its_own_sizes(changed: dict[str, Any], inputs: str, tmp_path: Path) -> None:
    model = experts_folder(tmp_path / "experts", **changed)
    with pytest.raises(ConfigError, match=rf"inputs of model=experts, {inputs}: set compress\.group_size="):
        compress_plan(model, "compress=rtn", "compress.group_size=512")


def test_experts_that_would_not_load_are_refused(tmp_path: Path) -> None:
    model = experts_folder(tmp_path / "mine", model_type="gpt_oss")
    said = r"^compress\.method=gptq: transformers does not load what llm-compressor writes of gpt_oss's experts, which "
    with pytest.raises(ConfigError, match=said):
        compress_plan(model, "compress=gptq", "compress.group_size=16")
    assert compress_plan(model, "compress=magnitude").skip is None


@pytest.mark.parametrize(
    ("words", "activations", "weights"),
    [
        (("compress=w8a8",), "int8", "int8"),
        (("compress=smoothquant",), "int8", "int8"),
        (("compress=w4a8", SMALL_GROUPS), "int8", "int4"),
        (("compress=nvfp4", "compress.activations=fp4"), "fp4", "nvfp4"),
        (("compress=fp8", "compress.activations=fp8_static"), "fp8_static", "fp8"),
    ],
)
def test_experts_do_not_load_beside_few_bits_of_activations(
    words: tuple[str, ...], activations: str, weights: str, tmp_path: Path
) -> None:
    model = experts_folder(tmp_path / "mine")
    said = rf"^compress\.activations={activations}: transformers does not load {weights} experts beside them, and "
    with pytest.raises(ConfigError, match=said):
        compress_plan(model, *words)
    assert compress_plan(model, "compress=mxfp4", "compress.activations=fp4").skip is None


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"model_type": "mixtral"}, "mixtral"),
        ({"model_type": "qwen2_moe"}, "qwen2_moe"),
        ({"mlp_only_layers": [0]}, "qwen3_moe"),
        ({}, ""),
    ],
)
def test_awq_takes_the_mixtures_that_it_scales_as_a_whole(changed: dict[str, Any], kind: str, tmp_path: Path) -> None:
    words = (experts_folder(tmp_path / "mine", **changed), "compress=awq", "compress.group_size=16")
    if not kind:
        assert compress_plan(*words).skip is None
        return
    with pytest.raises(ConfigError, match=rf"^compress\.method=awq: .* and model=mine is another \({kind}\): choose "):
        compress_plan(*words)


@pytest.mark.parametrize("method", ["hqq", "rtn"])
def test_zero_points_of_experts_are_refused(method: str, tmp_path: Path) -> None:
    words = (experts_folder(tmp_path / "mine"), f"compress={method}", "compress.group_size=16")
    with pytest.raises(ConfigError, match="transformers loads no zero points of experts, which model=mine has: set"):
        compress_plan(*words, "compress.symmetric=false")


def test_a_run_is_one_process_that_finds_llm_compressor_by_its_plan(model: str) -> None:
    plan = compress_plan(model, "compress=rtn", SMALL_GROUPS, "engine.python=/x/bin/python")
    assert (plan.processes, plan.devices, plan.samples) == (1, 1, 32)
    assert plan.engine_config["python"] == "/x/bin/python"
    assert "llmexp.launchers.compress.worker" in plan.command.argv
    elsewhere = compress_plan(model, "compress=rtn", SMALL_GROUPS, "engine.python=/y/bin/python")
    other = compress_plan(model, "compress=rtn", SMALL_GROUPS, "text.seq_len=64")
    assert (plan.id == elsewhere.id, plan.id == other.id) == (True, False)


def test_a_model_that_has_changed_is_another_run(tmp_path: Path) -> None:
    folder = trained_folder(tmp_path / "mine")
    before = compress_plan(f"model={folder}", "compress=layers").id
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    assert compress_plan(f"model={folder}", "compress=layers").id != before


@pytest.mark.parametrize("method", ["layers", "heads", "mlp", "magnitude", "hqq compress.group_size=16"])
def test_methods_of_llmexps_own_need_no_other_interpreter(method: str, model: str) -> None:
    plan = compress_plan(model, *f"compress={method}".split(), "engine.python=/x/bin/python")
    assert plan.engine_config["python"] is None
    assert get_engine("compress", "compress").server_software(plan.config) is None


def test_only_quantized_weights_need_compressed_tensors(model: str) -> None:
    engine = get_engine("compress", "compress")
    needed = {
        name: "compressed_tensors" in engine.needed_modules(compress_plan(model, *f"compress={name}".split()).config)
        for name in ("w8a8", "fp8", "hqq compress.group_size=16", "sparsegpt", "layers")
    }
    assert [name.split()[0] for name in needed if needed[name]] == ["w8a8", "fp8", "hqq"]


def test_a_models_own_tokenizer_reads_the_documents(tmp_path: Path) -> None:
    folder = trained_folder(tmp_path / "mine")
    assert compress_plan(f"model={folder}", "compress=layers").tokenizer == "bytes"
    (folder / "tokenizer.json").write_text("{}")
    (job,) = jobs_of(
        run_parser().parse_intermixed_args(["task=compress", "hardware=cpu", f"model={folder}", "compress=layers"])
    )
    assert job.plan.tokenizer == str(folder)
    assert f"model={folder}" in job.plan.overrides


def test_the_text_of_a_domain_makes_the_run(model: str, tmp_path: Path) -> None:
    ids, description = set(), {}
    for text in ("one", "two"):
        (tmp_path / "a.txt").write_text(text)
        domains = f"compress.recovery_domains={{a:{tmp_path}/a.txt,b:[{tmp_path}/a.txt]}}"
        plan = compress_plan(model, "compress=mlp", *RECOVERS.split(), "compress.recovery_shares_every=5", domains)
        ids.add(plan.id)
        description = COMPRESS.describe(plan)
        assert str(tmp_path / "a.txt") in plan.config.inputs
    assert len(ids) == 2
    assert description["recipe"] == "mlp: 25 % taken out, then 10 steps of recovery=all on a, b"


def test_recipes_are_swept(model: str) -> None:
    words = ["task=compress", "hardware=cpu", model, "compress=rtn,gptq,wanda_2of4", "+compress.group_size=16"]
    with pytest.raises(ConfigError, match="belongs to compress=rtn or compress=gptq"):
        jobs_of(run_parser().parse_intermixed_args(words))
    jobs = jobs_of(run_parser().parse_intermixed_args([*words[:3], "compress=w8a8,wanda_2of4,layers"]))
    assert [job.plan.name_fields["compress"] for job in jobs] == ["w8a8", "wanda_2of4", "layers"]
