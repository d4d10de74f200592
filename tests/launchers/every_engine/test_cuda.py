"""What only a GPU shows: run by `make gpu`. One rank is enough for kernels, places of state, and the clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from planning import Measurement, make_plan
from torch.profiler import ProfilerActivity, profile

from llmexp.launch.run import run_one
from llmexp.launchers.attention.causal import flash
from llmexp.launchers.attention.varlen import sdpa_records
from llmexp.launchers.data.packing import model_inputs
from llmexp.launchers.data.sequences import Example, Sequences
from llmexp.launchers.rank.frame import Rank, gpu_uuid
from llmexp.launchers.training.measuring import counters_of
from llmexp.method import Method
from llmexp.record.energy import EnergyMeter
from llmexp.record.samples import StepSample, read_samples
from llmexp.record.throttle_counters import ThrottleMeter
from llmexp.sweep.measuring import folder_of
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = pytest.mark.gpu

METHODS = ["Naive", "F", "R", "Z1", "Z2", "Z3", "Z2+O", "Z3+O", "F+R+Z3+O", "C", "F+C", "F+R+C+Z3"]
# All methods are observed together: one that cannot run here would take the others with it.
METHODS += ["Q", "R+Q", "C+Q"] if find_spec("bitsandbytes") else []

# Without Liger there is nothing to switch on: it is in the extra gpu alone.
LIGER = {"liger": ("kernels.liger=true",)} if find_spec("liger_kernel") else {}
SWITCHES: dict[str, tuple[str, ...]] = {
    "neither": (),
    "offload": ("memory.activation_offload=true",),
    "fa2": ("kernels.flash=fa2",),
    "cudnn": ("kernels.flash=cudnn",),
    **LIGER,
}


def plan(method: str, *overrides: str) -> TrainingPlan:
    return make_plan("hardware=auto", "parallelism.dp=1", "data.seq_len=64", f"method={method}", *overrides)


@pytest.fixture(scope="module")
def cuda(observe: Callable[..., Measurement]) -> dict[str, dict[str, Any]]:
    observed = observe({str(Method.parse(name)): plan(name) for name in METHODS}, ranks=1)
    return {name: ranks[0] for name, ranks in observed.items()}


@pytest.mark.parametrize("method", METHODS)
def test_f_runs_a_flash_kernel_of_the_gpu(cuda: dict[str, dict[str, Any]], method: str) -> None:
    observed = cuda[str(Method.parse(method))]
    fused = re.search("flash|cudnn", observed["attention_kernel"].lower())
    assert (fused is not None) == ("F" in method.split("+"))
    assert any("softmax" in name.lower() for name in observed["operators"]) or "F" in method.split("+")


@pytest.mark.parametrize("method", METHODS)
def test_o_puts_state_into_host_memory_and_nothing_else_does(cuda: dict[str, dict[str, Any]], method: str) -> None:
    state = cuda[str(Method.parse(method))]["state"]
    offloads = "O" in method.split("+")
    assert (state["optimizer"]["host"] > 0) == offloads
    assert (state["optimizer"]["device"] > 0) != offloads
    assert (state["parameters"]["host"] > 0) == (offloads and "Z3" in method)


@pytest.mark.parametrize("method", [name for name in METHODS if "Q" not in name])
def test_losses_follow_one_curve(cuda: dict[str, dict[str, Any]], method: str) -> None:
    assert cuda[str(Method.parse(method))]["losses"] == pytest.approx(cuda["Naive"]["losses"], abs=2e-2)


@pytest.mark.parametrize("method", [name for name in METHODS if "C" in name.split("+")])
def test_c_runs_kernels_of_triton_compiled_in_the_first_step(cuda: dict[str, dict[str, Any]], method: str) -> None:
    observed = cuda[str(Method.parse(method))]
    assert any(name.startswith("triton_") for name in observed["operators"])
    assert len(set(observed["compiled_graphs"])) == 1


def test_a_run_measures_with_the_devices_clock(tmp_path: Path) -> None:
    chosen = plan("F", "measure=quick", "tracking=none", f"sweep.outputs={tmp_path}", "sweep.name=cuda")
    folder = folder_of(chosen)
    result = run_one(chosen, folder)
    assert result.status == "success", result.reason
    tokens_per_s, allocated = result.metrics["tokens_per_s"], result.metrics["peak_allocated_bytes"]
    assert tokens_per_s is not None
    assert allocated is not None
    assert allocated.mean > 8 * 857_216
    measured = [
        sample for sample in read_samples(folder.repeat(0) / "samples.0.jsonl", StepSample) if not sample.warmup
    ]
    window_s = measured[-1].t_end_s - measured[0].t_start_s
    assert sum(sample.positions for sample in measured) / window_s == pytest.approx(tokens_per_s.mean, rel=0.05)
    assert result.environment["nccl"]
    inside = result.metrics["timed_share_of_wall"]
    assert inside is not None
    assert 0.5 < inside.mean <= 1.01


def test_the_boards_energy_counter_is_read() -> None:
    pytest.importorskip("pynvml")
    device, rank = torch.device("cuda", 0), Rank(index=0, local_index=0, world_size=1, folder=Path())
    with EnergyMeter(counters_of(rank, device)) as meter:
        torch.ones(4096, 4096, device=device).matmul(torch.ones(4096, 4096, device=device)).sum().item()
    assert meter.covers == ["GPU board"]


def test_the_gpu_s_throttling_is_counted() -> None:
    pytest.importorskip("pynvml")
    with ThrottleMeter(gpu_uuid(torch.device("cuda", 0))) as meter:
        torch.ones(4096, 4096, device="cuda").matmul(torch.ones(4096, 4096, device="cuda")).sum().item()
    assert meter.found is not None
    assert {"heat", "power cap"} <= meter.found.throttled_s.keys()


def test_records_of_a_row_attend_within_themselves_by_one_call_of_a_varying_length_kernel() -> None:
    device = torch.device("cuda")
    pytest.importorskip("torch.nn.attention.varlen")
    query = torch.randn(2, 4, 24, 64, device=device, dtype=torch.bfloat16)
    key, value = torch.randn(2, 2, 2, 24, 64, device=device, dtype=torch.bfloat16).unbind()
    rows = [[Example([1] * length, [1] * length) for length in row] for row in ((5, 13), (24,))]
    batch = Sequences.of_rows(rows, 24, isolated=True).micro_batch(0, 2, device)
    options = {
        key: given for key, given in model_inputs(batch).items() if key not in ("input_ids", "labels", "position_ids")
    }
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        found, _ = sdpa_records(torch.nn.Identity(), query, key, value, None, **options)
    for row, start, end in ((0, 0, 5), (0, 5, 18), (1, 0, 24)):
        alone = flash(
            query[row : row + 1, :, start:end], key[row : row + 1, :, start:end], value[row : row + 1, :, start:end]
        )
        torch.testing.assert_close(found[row, start:end], alone[0].transpose(0, 1), rtol=2e-2, atol=2e-2)
    assert sum(event.count for event in profiled.key_averages() if "flash_fwd" in event.key) == 1


@pytest.fixture(scope="module")
def switched(observe: Callable[..., Measurement]) -> dict[str, dict[str, Any]]:
    plans = {name: plan("F", *words, "data.seq_len=1024") for name, words in SWITCHES.items()}
    return {name: ranks[0] for name, ranks in observe(plans, ranks=1).items()}


@pytest.mark.skipif(not LIGER, reason="liger_kernel is not installed")
def test_ligers_kernels_run_and_compute_the_same(switched: dict[str, dict[str, Any]]) -> None:
    assert any("rms_norm" in name and name.startswith("_") for name in switched["liger"]["operators"])
    assert not any("rms_norm" in name and name.startswith("_") for name in switched["neither"]["operators"])
    assert switched["liger"]["losses"] == pytest.approx(switched["neither"]["losses"], abs=2e-2)


def test_cudnns_attention_and_flash_attentions_run_and_compute_the_same(switched: dict[str, dict[str, Any]]) -> None:
    assert "cudnn" in switched["cudnn"]["attention_kernel"]
    assert "flash" in switched["fa2"]["attention_kernel"].lower()
    assert switched["cudnn"]["losses"] == pytest.approx(switched["fa2"]["losses"], abs=2e-2)


def test_offloaded_activations_leave_the_gpu(switched: dict[str, dict[str, Any]]) -> None:
    assert switched["offload"]["losses"] == pytest.approx(switched["neither"]["losses"], abs=2e-3)
    kept = {name: switched[name]["kept_by_forward_bytes"] for name in ("offload", "neither")}
    assert kept["offload"] < kept["neither"] / 2
