"""Folders in the 4-bit formats of GPTQ and AWQ: the values of the seeded weights, rounded to the nearest."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from llmexp.cli.resolvers import server_python
from llmexp.launchers.models.building import build, configuration
from llmexp.launchers.models.weights import seeded
from llmexp.launchers.serving.weights.int4_writer import awq, gptq
from llmexp.launchers.serving.weights.model_folder import FolderRequest
from llmexp.launchers.serving.weights.model_writer import add_older_words, write
from llmexp.schema import DenseModel
from llmexp.serving.plan.quantized import INT4, Int4, group_size

MODEL = DenseModel(
    name="small",
    architecture="llama",
    vocab_size=96,
    hidden_size=64,
    intermediate_size=160,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    max_positions=64,
)
GROUP = 32
# Which column of a row stands at which place of a word, from the lowest bits, as AutoAWQ's packing has it.
AWQ_COLUMNS = [0, 2, 4, 6, 1, 3, 5, 7]


def in_words(words: Tensor, columns: list[int]) -> Tensor:
    """The values of rows of words, one bit after the other by the format's own words."""
    values = torch.empty(words.shape[0], words.shape[1] * 8)
    for row, line in enumerate(words.tolist()):
        for word, bits in enumerate(line):
            for place, column in enumerate(columns):
                values[row, word * 8 + column] = ((bits & 0xFFFFFFFF) >> (4 * place)) & 15
    return values


def restored(kind: Int4, found: dict[str, Tensor]) -> Tensor:
    """The matrix of outputs by inputs that a server computes with."""
    plain = list(range(8))
    if kind == "gptq":
        values, zeros = in_words(found["qweight"].T, plain).T, in_words(found["qzeros"], plain) + 1
        groups = found["g_idx"].long()
    else:
        values, zeros = in_words(found["qweight"], AWQ_COLUMNS), in_words(found["qzeros"], AWQ_COLUMNS)
        groups = torch.arange(values.shape[0]) // (values.shape[0] // found["scales"].shape[0])
    return ((values - zeros[groups]) * found["scales"].float()[groups]).T


@pytest.fixture(scope="module", params=INT4)
def kind(request: pytest.FixtureRequest) -> Int4:
    found: Int4 = request.param
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, kind: Int4) -> Path:
    made = tmp_path_factory.mktemp(kind)
    write(FolderRequest(model=MODEL, dtype="bf16", seed=3, weights=kind), made)
    add_older_words(made)
    return made


def matrices(folder: Path) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        stem, _, leaf = name.rpartition(".")
        found.setdefault(stem, {})[leaf] = tensor
    return found


def test_values_that_four_bits_hold_come_back_exactly() -> None:
    whole = torch.randint(0, 16, (24, 64), generator=torch.Generator().manual_seed(0)).float()
    whole[:, ::GROUP] = 0  # every group has the smallest and the largest value
    whole[:, 1::GROUP] = 15
    symmetric, shifted = (whole - 7.5) / 8, (whole - 4) / 8
    assert torch.equal(restored("awq", awq(shifted, GROUP)), shifted)
    # The middle of GPTQ's values is a whole number, and each lies half a step beside it.
    assert torch.allclose((restored("gptq", gptq(symmetric, GROUP)) - symmetric).abs(), torch.tensor(1 / 16), atol=1e-6)


def test_each_matrix_is_rounded_to_the_nearest_and_the_rest_is_as_it_was(folder: Path, kind: Int4) -> None:
    seeds = build(configuration(MODEL), torch.bfloat16, "sdpa", weights=seeded(3), device=torch.device("cpu"))
    wanted, found = seeds.state_dict(), matrices(folder)
    names = {name.rpartition(".")[0] for name in wanted}
    assert found.keys() == names
    quantized = {name for name in names if "qweight" in found[name]}
    assert quantized == {name for name in names if name.endswith("_proj")}
    for name in names:
        weight = wanted[f"{name}.weight"]
        if name not in quantized:
            assert torch.equal(found[name]["weight"], weight)
            continue
        step = found[name]["scales"].float().repeat_interleave(GROUP, 0).T
        error = (restored(kind, found[name]) - weight.float()).abs() / step
        assert error.max() <= (0.51 if kind == "gptq" else 1.01), "AWQ rounds its zero too, and fp16 the scale"
        assert error.median() < 0.3


def test_the_layout_is_the_fields(folder: Path, kind: Int4) -> None:
    found = matrices(folder)["model.layers.0.mlp.down_proj"]
    shapes = {leaf: (tuple(tensor.shape), tensor.dtype) for leaf, tensor in found.items()}
    inputs, outputs, groups = 160, 64, 160 // GROUP
    shared = {
        "qzeros": ((groups, outputs // 8), torch.int32),
        "scales": ((groups, outputs), torch.float16),
    }
    assert shapes == shared | (
        {"qweight": ((inputs // 8, outputs), torch.int32), "g_idx": ((inputs,), torch.int32)}
        if kind == "gptq"
        else {"qweight": ((inputs, outputs // 8), torch.int32)}
    )
    said = json.loads((folder / "config.json").read_text())
    assert said["architectures"] == ["LlamaForCausalLM"]
    assert said["quantization_config"]["quant_method"] == kind
    assert (said["quantization_config"]["bits"], said["quantization_config"]["group_size"]) == (4, GROUP)
    assert said["eos_token_id"] is None


def test_a_group_is_128_inputs_or_what_divides_all_of_them() -> None:
    assert group_size(MODEL) == GROUP
    assert group_size(MODEL.model_copy(update={"hidden_size": 256, "intermediate_size": 640})) == 128
    assert group_size(MODEL.model_copy(update={"intermediate_size": 344})) == 8


# vLLM's own packing, which its tests hold against its kernels, of values that it unpacks by no code of ours.
BY_VLLM = """
import sys, json, torch
from safetensors.torch import load_file
from vllm.model_executor.layers.quantization.utils.quant_utils import awq_pack, gptq_pack
values = load_file(sys.argv[1])
inputs, outputs = values["gptq"].shape
equal = {
    "gptq": torch.equal(gptq_pack(values["gptq"], 4, inputs, outputs), values["gptq_words"]),
    "awq": torch.equal(awq_pack(values["awq"], 4, inputs, outputs), values["awq_words"]),
}
print(json.dumps(equal))
"""


@pytest.mark.sweep
@pytest.mark.skipif(server_python("vllm") is None, reason="needs an environment with vLLM: make serve-venv")
def test_words_are_those_of_vllms_own_packing(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(1))
    by_gptq, by_awq = gptq(weight, GROUP), awq(weight, GROUP)
    given: dict[str, Any] = {
        "gptq": in_words(by_gptq["qweight"].T, list(range(8))).T.to(torch.int32).contiguous(),
        "gptq_words": by_gptq["qweight"],
        "awq": in_words(by_awq["qweight"], AWQ_COLUMNS).to(torch.int32),
        "awq_words": by_awq["qweight"],
    }
    save_file({name: tensor.contiguous() for name, tensor in given.items()}, tmp_path / "values.safetensors")
    python = server_python("vllm")
    assert python
    said = subprocess.run(
        [python, "-c", BY_VLLM, str(tmp_path / "values.safetensors")], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr[-500:]
    assert json.loads(said.stdout.splitlines()[-1]) == {"gptq": True, "awq": True}
