from __future__ import annotations

import gzip
import hashlib
import json
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from patience import HANG_S
from torch import distributed, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from llmexp.measure import kernels
from llmexp.measure.kernels import KernelProbe, _operators, products_in, trace_to


def attend(backend: SDPBackend | None) -> None:
    query = torch.rand(1, 2, 8, 16)
    if backend is None:
        (query @ query.transpose(-1, -2)).softmax(-1) @ query
        return
    with sdpa_kernel(backend):
        functional.scaled_dot_product_attention(query, query, query, is_causal=True)


@pytest.mark.parametrize(
    ("backend", "kernel"),
    [
        (SDPBackend.FLASH_ATTENTION, "aten::_scaled_dot_product_flash_attention_for_cpu"),
        (SDPBackend.MATH, "aten::_scaled_dot_product_attention_math"),
        (None, "aten::_softmax"),
    ],
)
def test_the_attention_that_ran_is_named(backend: SDPBackend | None, kernel: str) -> None:
    probe = KernelProbe()
    with probe.watch():
        attend(backend)
    assert probe.attention == kernel


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what threads do")
def test_the_profiler_does_not_end_while_a_thread_may_still_write_into_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gloo's do after they have completed a collective, and the process was killed: malloc(): … corrupted."""
    monkeypatch.setattr(kernels, "await_others_asleep", partial(kernels.await_others_asleep, limit_s=HANG_S))
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with KernelProbe().watch():
            late = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 2_000_000))
            late.start()
        assert not late.is_alive()
    finally:
        distributed.destroy_process_group()


def test_the_costliest_operators_are_few_and_short_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LONGEST_NAME", 8)
    # Large, so that a small operator that a busy machine interrupts is not the costliest.
    probe, matrix = KernelProbe(), torch.rand(1200, 1200)
    with probe.watch():
        for _ in range(3):
            matrix = matrix @ matrix
        torch.ones(2).sum()
    assert probe.costliest(1) == [{"name": "aten::mm", "calls": 3}]
    assert all(len(str(kernel["name"])) <= 8 for kernel in probe.costliest())


def test_calls_and_times_are_those_of_the_profilers_own_table() -> None:
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(8)))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        layers(torch.rand(4, 64)).sum().backward()
    table = {event.key: event for event in profiler.key_averages()}
    found = list(_operators(profiler.profiler.kineto_results.events()))
    assert Counter(name for name, _ in found) == {name: event.count for name, event in table.items()}
    for name, event in table.items():
        assert sum(own_ns for each, own_ns in found if each == name) / 1000 == pytest.approx(
            event.self_cpu_time_total, rel=1e-3, abs=1
        ), name


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("graph_0_cpp_fused__softmax__to_copy_add_2", True),
        ("triton_per_fused__softmax__to_copy_add_mul_4", True),
        ("triton_red_fused__to_copy__softmax_1", True),
        ("triton_red_fused__log_softmax__to_copy_view_0", False),
    ],
)
def test_generated_kernels_are_named_after_the_softmax_of_attention_not_the_losss(name: str, attention: bool) -> None:
    probe = KernelProbe()
    probe.names = {"aten::mm": 3, name: 1}
    assert probe.attention == (name if attention else None)


def test_without_attention_nothing_is_named() -> None:
    probe = KernelProbe()
    with probe.watch():
        torch.ones(2).sum()
    assert probe.attention is None


def test_a_trace_is_compressed_json_with_the_operators_that_ran(tmp_path: Path) -> None:
    path = tmp_path / "trace" / "rank0.json.gz"
    with trace_to(path):
        attend(None)
    names = {event["name"] for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]}
    assert "aten::_softmax" in names


def seen(work) -> str | None:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        work()
    return products_in(profiler.profiler.kineto_results.events())


def step(model: torch.nn.Module, dtype: torch.dtype = torch.float32) -> None:
    model(torch.randn(4, 8, 32, dtype=dtype)).sum().backward()


def test_products_are_named_by_the_dtype_of_their_operands():
    assert seen(lambda: step(torch.nn.Linear(32, 32))) == "fp32"
    assert seen(lambda: step(torch.nn.Linear(32, 32).bfloat16(), torch.bfloat16)) == "bf16"


def test_autocast_shows_although_parameters_stay_in_fp32():
    model = torch.nn.Linear(32, 32)

    def autocast() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            step(model)

    assert seen(autocast) == "bf16"
    assert model.weight.dtype == torch.float32


def test_small_products_in_another_dtype_are_not_named_and_large_ones_are():
    def both(size: int) -> None:
        step(torch.nn.Linear(32, 32).bfloat16(), torch.bfloat16)
        torch.randn(size, size) @ torch.randn(size, size)

    assert seen(lambda: both(4)) == "bf16"
    assert seen(lambda: both(64)) == "fp32 and bf16"


def test_without_products_there_is_no_dtype():
    assert seen(lambda: torch.randn(3).exp()) is None
