"""Knobs that change where a model lies: in four bits, in two servers, or with experts in the host's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from served_models import small_models

from llmexp.launchers.serving.engines import lightllm, llama_cpp, sglang, tgi, transformers, vllm
from llmexp.serving.engine import ServingEngine, ServingSpec

DENSE, MIXTURE = small_models()
CPU = ServingSpec(DENSE, "fp32", "cpu", positions=544, requests=16)
GPU = replace(CPU, device="cuda", dtype="bf16")
NARROW = DENSE.model_copy(update={"intermediate_size": 344})


def with_knobs(served: ServingSpec, **knobs: Any) -> ServingSpec:
    return replace(served, knobs=knobs)


@pytest.mark.parametrize(
    ("engine", "knobs", "flags"),
    [
        (vllm.ENGINE, {"weights_offload_gb": 4}, "--cpu-offload-gb 4"),
        (vllm.ENGINE, {"kv_offload_gb": 2}, "--kv-offloading-size 2"),
        (vllm.ENGINE, {"quantization": "fp8"}, "--quantization fp8"),
        (llama_cpp.ENGINE, {"gpu_layers": 3}, "--n_gpu_layers 3"),
        (lightllm.ENGINE, {"kv_dtype": "int8"}, "--mode triton_int8kv"),
    ],
)
def test_knobs_of_gpus_reach_the_server(engine: ServingEngine, knobs: dict[str, Any], flags: str) -> None:
    served = with_knobs(GPU, **knobs)
    assert f" {flags}" in " ".join(engine.server(served).command.argv)
    assert flags not in " ".join(engine.server(GPU).command.argv)


@pytest.mark.parametrize("engine", [vllm.ENGINE, sglang.ENGINE, tgi.ENGINE], ids=lambda engine: str(engine.name))
@pytest.mark.parametrize("kind", ["gptq", "awq"])
def test_a_folder_is_written_in_the_format_that_is_asked_for(engine: ServingEngine, kind: str) -> None:
    asked = with_knobs(GPU, quantization=kind)
    assert engine.unsupported(asked) is None
    assert engine.server(asked).weights == kind
    assert kind in engine.server(asked).command.argv
    assert engine.reported_memory(asked).folder_copies == 1


@pytest.mark.parametrize(
    ("served", "why"),
    [
        (replace(GPU, dtype="fp32"), "in 16 bits only: set serve.dtype=bf16"),
        (replace(GPU, model=MIXTURE), "those of dense models, and model=mixture has experts"),
        (replace(GPU, model=NARROW), "8 inputs would share a scale, and servers want 32 or more"),
        (replace(GPU, own_weights=True), "leave serve.weights=own out"),
    ],
)
def test_what_has_no_four_bit_folder_says_why(served: ServingSpec, why: str) -> None:
    assert why in str(vllm.ENGINE.unsupported(with_knobs(served, quantization="gptq")))


def test_an_engine_without_the_format_names_those_that_have_it() -> None:
    reason = transformers.ENGINE.unsupported(with_knobs(GPU, quantization="awq"))
    assert reason == (
        "engine=transformers cannot read weights in that format: "
        "engine.options.quantization=awq is for vllm, sglang and tgi"
    )


@pytest.mark.parametrize(("flags", "is_skipped"), [({"avx2"}, True), ({"avx2", "avx512f"}, False)])
@pytest.mark.parametrize("knobs", [{"quantization": "gptq"}, {"kv_dtype": "fp8"}])
def test_on_a_cpu_four_bits_and_a_cache_of_fp8_need_avx512(
    monkeypatch: pytest.MonkeyPatch, knobs: dict[str, str], flags: set[str], is_skipped: bool
) -> None:
    monkeypatch.setattr(vllm, "instruction_sets", lambda: flags)
    reason = vllm.ENGINE.unsupported(with_knobs(replace(CPU, dtype="bf16"), **knobs))
    ((name, value),) = knobs.items()
    assert (f"engine.options.{name}={value} needs AVX-512" in str(reason)) == is_skipped
    assert (reason is None) != is_skipped


@pytest.mark.parametrize(
    ("served", "connector", "devices"),
    [(CPU, "ExampleConnector", "0"), (replace(GPU, devices=2), "NixlConnector", "2")],
)
def test_two_servers_are_started_by_one_program(served: ServingSpec, connector: str, devices: str) -> None:
    asked = with_knobs(served, prefill_apart=True)
    assert vllm.ENGINE.unsupported(asked) is None
    argv, one = vllm.ENGINE.server(asked).command.argv, vllm.ENGINE.server(with_knobs(served)).command.argv
    program = ["{own_python}", "-m", "llmexp.launchers.serving.disaggregated.program"]
    assert argv == [*program, connector, "{scratch}", devices, *one]
    assert asked.every_device == 2 * served.every_device
    assert vllm.ENGINE.reported_memory(asked).folder_copies == 2
    assert vllm.ENGINE.server(with_knobs(served, prefill_apart=False)).command.argv == one


@pytest.mark.parametrize(
    ("served", "given", "why"),
    [
        (GPU, "Mooncake", "prefill_apart=Mooncake: choices are true, false and ExampleConnector, NixlConnector"),
        (CPU, "NixlConnector", "moves the KV cache between GPUs: ExampleConnector writes it to files"),
        (replace(CPU, replicas=2), True, "set parallelism.dp=1"),
        (replace(CPU, profile=True), True, "set serve.profile=false"),
    ],
)
def test_two_servers_that_cannot_be_say_why(served: ServingSpec, given: object, why: str) -> None:
    assert why in str(vllm.ENGINE.unsupported(with_knobs(served, prefill_apart=given)))


def test_experts_lie_in_host_memory_and_nothing_else_does() -> None:
    mixture = replace(GPU, model=MIXTURE)
    words = " ".join(vllm.ENGINE.server(with_knobs(mixture, experts_offload_gb=4)).command.argv)
    assert "--cpu-offload-gb 4 --cpu-offload-params experts" in words
    assert vllm.ENGINE.unsupported(with_knobs(mixture, experts_offload_gb=4)) is None
    both = with_knobs(mixture, experts_offload_gb=4, weights_offload_gb=2)
    for asked, why in (
        (with_knobs(GPU, experts_offload_gb=4), "model=dense has no experts"),
        (both, "share one limit of the server"),
        (with_knobs(replace(CPU, model=MIXTURE), experts_offload_gb=4), "in the host's memory already"),
    ):
        assert why in str(vllm.ENGINE.unsupported(asked))
