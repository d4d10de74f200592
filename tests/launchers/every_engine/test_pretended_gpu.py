"""What a rank does on a GPU, shown without one: see pretended.

The model is small, and ZeRO's buckets and what Z3 gathers are too, so that their shares are near those of 7B.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest
import torch
from marks import slow
from planning import make_plan
from pretended.library import compile_with

from llmexp.record.installed import look
from llmexp.record.result import to_json
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

LAYERS = 6
# Embedding, head, the last norm, and nine tensors a layer.
TENSORS = 3 + 9 * LAYERS
SMALL = (
    *("hardware=h200", "model=7b", f"model.num_layers={LAYERS}", "model.vocab_size=512", "model.hidden_size=1024"),
    *(
        "model.intermediate_size=2752",
        "model.num_heads=8",
        "model.num_kv_heads=8",
        "data=synthetic",
        "data.seq_len=256",
    ),
)
BUCKET, LIVE = 5_000_000, 10_000_000
ZERO = (
    f"+engine.options.zero_optimization.reduce_bucket_size={BUCKET}",
    f"+engine.options.zero_optimization.allgather_bucket_size={BUCKET}",
)
GATHERED = (
    f"+engine.options.zero_optimization.stage3_max_live_parameters={LIVE}",
    f"+engine.options.zero_optimization.stage3_max_reuse_distance={LIVE}",
    f"+engine.options.zero_optimization.stage3_prefetch_bucket_size={LIVE // 4}",
)
PURE, MIXED = "precision=bf16_pure", "precision=bf16_mixed"
FA2 = f"{PURE} kernels.flash=fa2"
TWICE = f"{MIXED} batch.accumulation=2"
# All logits together would be more than the layers hold.
CHUNKED = "kernels.chunked_loss=true model.vocab_size=32768 data.seq_len=4096"
LONGER = "data.seq_len=4096"
FUSED = f"kernels.fused_projections=true {LONGER}"
RING, ULYSSES = (f"parallelism.cp=2 parallelism.cp_kind={kind}" for kind in ("ring", "ulysses"))
# Every rank's experts get as many tokens as it has, which the host waits for in each layer.
MOE = "model=mixtral model.num_experts=8 parallelism.ep=8"
WHOLE = "parallelism.tp=2 parallelism.etp=1 parallelism.sequence=true"
STAGES = "parallelism.pp=2 batch.accumulation=4"
FOUR = "parallelism.tp=2 parallelism.pp=2 parallelism.sequence=true batch.accumulation=4"
CUT = "parallelism.tp=2 parallelism.sequence=true"
# Embedding and head are most of the model.
TIED = f"{CUT} model.tie_embeddings=true model.vocab_size=131072"
# The first of two stages, whose embedding the last has too.
ENDS = "parallelism.pp=2 batch.accumulation=4 model.tie_embeddings=true model.vocab_size=131072"
# Reducing the gradients of embedding and head takes most.
WIDE = "model.vocab_size=131072"
LOOPED = "parallelism.virtual_stages=3"
IN_BACKGROUND = f"{MIXED} +engine.options.zero_optimization.overlap_comm=true"
# By engine, ranks, method and words: how often the host waits for the device in a step.
RUNS = {
    ("torch", 1, "F", PURE): 0,
    # The package flash-attn, with one sequence.
    ("torch", 1, "F", FA2): 0,
    # bitsandbytes waits after each tensor's update; LOMO reads from each gradient whether it is finite.
    ("torch", 1, "F", f"{PURE} optimizer=lion"): TENSORS,
    ("torch", 1, "F", f"{PURE} optimizer=adamw8bit"): TENSORS,
    ("torch", 1, "F", f"{PURE} optimizer=lomo"): TENSORS,
    ("torch", 1, "F+R", MIXED): 0,
    ("torch", 1, "F+R", f"{PURE} kernels.fused_accumulation=true batch.accumulation=2"): 0,
    ("torch", 1, "F", f"{PURE} memory.activation_offload=true"): 0,
    ("torch", 1, "F", f"{PURE} {CHUNKED}"): 0,
    ("deepspeed", 8, "F+R+Z3", f"{MIXED} {CHUNKED}"): 3,
    ("torch", 1, "F+R+Z3", f"{PURE} {RING} {CHUNKED}"): 0,
    ("torch", 1, "F", f"{PURE} {CUT} {CHUNKED}"): 0,
    ("torch", 1, "F+Z3", f"{MIXED} {CUT} {CHUNKED}"): 0,
    ("megatron", 1, "F", f"{MIXED} {LONGER}"): TENSORS - 3 * LAYERS + 1,
    ("megatron", 1, "F", f"{MIXED} {CHUNKED}"): TENSORS - 3 * LAYERS + 1,
    ("megatron", 1, "F", f"{MIXED} {CUT} {CHUNKED}"): TENSORS - 3 * LAYERS + 1,
    ("torch", 1, "F+R", f"{PURE} memory.keep=attention {LONGER}"): 0,
    ("torch", 1, "F+R", f"{PURE} memory.keep=products {LONGER}"): 0,
    ("torch", 1, "F+R", f"{PURE} {LONGER}"): 0,
    ("torch", 1, "F+R", f"{PURE} memory.recompute_layers=2 {LONGER}"): 0,
    ("deepspeed", 8, "F+R+Z3", f"{MIXED} memory.recompute_layers=4 data.seq_len=2048"): 3,
    ("deepspeed", 8, "F+R+Z3", f"{MIXED} memory.keep=products {LONGER}"): 3,
    ("torch", 1, "F", f"{PURE} {FUSED}"): 0,
    ("torch", 1, "F+R", f"{PURE} memory.keep=products kernels.fused_projections=true"): 0,
    ("torch", 8, "F+Z3", f"{MIXED} {FUSED}"): 0,
    ("deepspeed", 8, "F+Z3", f"{MIXED} {FUSED}"): 3,
    ("torch", 1, "F", f"{PURE} precision.qat=int4 precision.qat_group_size=32"): 0,
    ("torch", 8, "F+R+Z3", f"{MIXED} precision.qat=int4 precision.qat_group_size=32"): 0,
    ("deepspeed", 8, "F+R+Z3", f"{MIXED} precision.qat=int4 precision.qat_group_size=32"): 3,
    ("torch", 1, "Z3", MIXED): 0,
    ("torch", 8, "Z2", MIXED): 0,
    ("torch", 8, "F+R+Z3", MIXED): 0,
    ("torch", 1, "F+R+Z3", f"{PURE} {RING} {LONGER}"): 0,
    ("torch", 4, "F+Z3", f"{MIXED} {ULYSSES} {LONGER}"): 0,
    ("torch", 8, "F", f"{PURE} {MOE}"): LAYERS,
    ("torch", 8, "F+R+Z3", f"{MIXED} {MOE}"): 2 * LAYERS,
    ("torch", 8, "F", f"{PURE} {MOE} {LONGER}"): LAYERS,
    ("torch", 8, "F+Z2", f"{MIXED} {MOE} parallelism.ep=4"): LAYERS,
    ("torch", 8, "F+Z3", f"{MIXED} {MOE} parallelism.ep=4"): LAYERS,
    ("torch", 8, "F+R+Z3", f"{TWICE} {MOE}"): 4 * LAYERS,
    ("torch", 4, "F", f"{PURE} {MOE} {RING}"): LAYERS,
    ("torch", 4, "F", f"{PURE} {MOE} {ULYSSES}"): LAYERS,
    ("torch", 4, "F+Z3", f"{MIXED} {MOE} {ULYSSES}"): LAYERS,
    ("torch", 4, "F+R+Z3", f"{MIXED} {MOE} {RING} {LONGER}"): 2 * LAYERS,
    ("torch", 4, "F", f"{PURE} {MOE} {WHOLE}"): LAYERS,
    ("torch", 4, "F", f"{PURE} {MOE} {WHOLE} {LONGER}"): LAYERS,
    ("torch", 4, "F+R+Z3", f"{MIXED} {MOE} {WHOLE}"): 2 * LAYERS,
    ("torch", 8, "F+Z2", f"{MIXED} {MOE} {WHOLE} {LONGER}"): LAYERS,
    # Half of the layers, in four passes.
    ("torch", 8, "F", f"{PURE} {MOE} {STAGES}"): 2 * LAYERS,
    ("torch", 8, "F+R", f"{MIXED} {MOE} {STAGES} {LONGER}"): 4 * LAYERS,
    ("torch", 4, "F", f"{PURE} {MOE} {STAGES} {WHOLE}"): 2 * LAYERS,
    ("torch", 8, "F+Z2", f"{MIXED} {MOE} {STAGES} parallelism.ep=4"): 2 * LAYERS,
    ("torch", 8, "F+Z3", f"{MIXED} {MOE} {STAGES} {LOOPED} parallelism.ep=2"): 2 * LAYERS,
    ("torch", 8, "F+R+Z3", f"{MIXED} {MOE} {STAGES} {LONGER} parallelism.ep=4"): 4 * LAYERS,
    # The first of two stages, with the embedding: it has two passes in flight.
    ("torch", 2, "F+R", f"{MIXED} {FOUR} {RING} {LONGER}"): 0,
    ("torch", 2, "F", f"{MIXED} {FOUR} {RING} {LONGER}"): 0,
    ("torch", 2, "F+R", f"{MIXED} {FOUR} {LONGER} memory.recompute_layers=2"): 0,
    ("torch", 2, "F+R+Z3", f"{MIXED} {WIDE}"): 0,
    ("torch", 2, "F+R+Z2", f"{MIXED} {WIDE} batch.accumulation=2"): 0,
    ("torch", 2, "F+R+Z2", f"{MIXED} {WIDE} batch.accumulation=4"): 0,
    ("torch", 2, "F+R+Z3", f"{MIXED} {STAGES} {WIDE}"): 0,
    ("torch", 4, "F+R+Z2", f"{PURE} {STAGES} {WIDE} batch.accumulation=2"): 0,
    ("torch", 2, "F+R+Z3", f"{MIXED} {STAGES} {LONGER}"): 0,
    ("torch", 2, "F+Z3", f"{PURE} {STAGES} {LONGER}"): 0,
    ("torch", 2, "F+Z2", f"{MIXED} {STAGES} {LONGER}"): 0,
    ("torch", 2, "F+R+Z3", f"{MIXED} {STAGES}"): 0,
    ("torch", 4, "F+R+Z2", f"{MIXED} {STAGES} {LONGER} parallelism.shard=2"): 0,
    ("torch", 2, "F+Z3", f"{MIXED} {STAGES} {LOOPED} {LONGER}"): 0,
    ("torch", 2, "F+R+Z3", f"{MIXED} {FOUR} {RING} {LONGER}"): 0,
    ("torch", 2, "F+Z2", f"{MIXED} {FOUR} {RING} {LONGER}"): 0,
    ("torch", 2, "F+R+Z3", f"{MIXED} {ENDS}"): 0,
    ("torch", 1, "F", f"{PURE} {TIED}"): 0,
    ("torch", 1, "F", f"{PURE} {TIED} batch.accumulation=2"): 0,
    ("torch", 1, "F", f"{PURE} {TIED} parallelism.tp=1 parallelism.sequence=false"): 0,
    ("torch", 1, "F", f"{PURE} {ENDS}"): 0,
    ("torch", 1, "F+R", f"{MIXED} {CUT} {LONGER}"): 0,
    ("torch", 4, "F+R+Z3", f"{MIXED} {TIED}"): 0,
    ("torch", 4, "F+Z2", f"{MIXED} {TIED}"): 0,
    ("torch", 4, "F+Z1", f"{MIXED} {CUT}"): 0,
    ("deepspeed", 1, "Naive", PURE): 0,
    # It reads from each gradient whether it is finite, and then two norms and a flag.
    ("deepspeed", 1, "F", MIXED): TENSORS + 3,
    ("deepspeed", 1, "Z2", MIXED): 2,
    # On one rank the parameters of a module are copied, and waited for.
    ("deepspeed", 1, "F+R+Z3", PURE): 74,
    ("deepspeed", 8, "Z1", MIXED): 2,
    ("deepspeed", 8, "F+Z1", TWICE): 2,
    ("deepspeed", 8, "F+Z1", IN_BACKGROUND): 3,
    ("deepspeed", 8, "Z2", PURE): 2,
    ("deepspeed", 8, "F+Z3", MIXED): 3,
    ("deepspeed", 8, "F+Z3+O", MIXED): 4,
    # Without TransformerEngine and Apex it reads the norm of each gradient: queries, keys and values are one tensor,
    # gate and up another.
    ("megatron", 1, "F", MIXED): TENSORS - 3 * LAYERS + 1,
    ("megatron", 8, "Z1", MIXED): 6,
}
Run = tuple[str, int, str, str]
Observed = dict[str, Any]


def name_of(run: Run) -> str:
    return " ".join(map(str, run))


each_run = pytest.mark.parametrize("run", [slow(run) for run in RUNS], ids=name_of)


def plan(engine: str, ranks: int, method: str, words: str) -> TrainingPlan:
    options = ZERO + GATHERED * ("Z3" in method) if engine == "deepspeed" and "Z" in method else ()
    return make_plan(
        *SMALL, *options, f"engine={engine}", f"parallelism.dp={ranks}", f"method={method}", *words.split()
    )


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[str], Observed]:
    folder, compiler = tmp_path_factory.mktemp("pretended"), look().compiler
    if not compiler or sys.platform != "linux" or torch.version.cuda:
        pytest.skip("needs Linux, a C++ compiler and a torch without CUDA: where there is a GPU, make gpu")
    compile_with(compiler, folder / "cuda.so")
    mine = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    for run in {item.callspec.params["last"] for item in mine if "last" in item.callspec.params}:
        (folder / f"last {name_of(run)}.plan.json").write_text(to_json(plan(*run)))
    each = {item.callspec.params["run"] for item in mine if "run" in item.callspec.params}
    for run in each.union(*(item.callspec.params["runs"] for item in mine if "runs" in item.callspec.params)):
        (folder / f"{name_of(run)}.plan.json").write_text(to_json(plan(*run)))
    (folder / "measured.plan.json").write_text(
        to_json(make_plan(*SMALL, "parallelism.dp=1", "method=F+R", PURE, "measure=smoke"))
    )
    done = subprocess.run(
        [sys.executable, "-m", "pretended.worker", str(folder / "cuda.so"), str(folder)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cuda"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return lambda name: json.loads((folder / f"{name}.plan.observed").read_text())


@each_run
def test_a_step_runs_on_the_device_by_the_kernel_of_its_method(observed: Callable[[str], Observed], run: Run) -> None:
    """No operator was given tensors of two devices: fake tensors refuse it as real ones do."""
    found, atoms = observed(name_of(run)), run[2].split("+")
    assert found["loss"] == "cuda:0"
    made = plan(*run)
    again = ("R" in atoms and "keep" not in run[3]) * made.config.memory.recomputed_share(LAYERS)
    times = round(LAYERS // made.dims.pp * (1 + again)) * ("F" in atoms) * made.batch.accumulation
    kernel = "flash" if run[3] == FA2 or RING in run[3] else "cudnn"
    times *= 2 if RING in run[3] else 1  # a block for each rank of a sequence
    assert found["operators"].get(f"aten::_scaled_dot_product_{kernel}_attention", 0) == times
    assert ("cpu" in found["places"]) == (run[0] == "torch" and "O" in atoms)


@each_run
def test_the_host_waits_for_the_device_no_more_often_than_the_docs_say(
    observed: Callable[[str], Observed], run: Run
) -> None:
    waits = observed(name_of(run))["waits"]
    assert sum(waits.values()) == RUNS[run], waits


@each_run
def test_the_plan_knows_what_lives_on_the_device_at_the_worst_moment(
    observed: Callable[[str], Observed], run: Run
) -> None:
    """What is sure is there, and no more than is estimated, but for what a layer holds while it is reduced."""
    made = plan(*run)
    fit, most = fit_of(made, made.batch.micro), max(observed(name_of(run))["peaks"].values())
    assert fit is not None
    assert 0.999 * fit.state <= most <= 1.05 * (fit.tensors + fit.waste)


# The rest has an activation or two, or the last stage's loss is what is most.
EXACT = [
    run
    for run in RUNS
    if any(each in run[3] for each in (CHUNKED, LONGER, MOE, TIED)) or (WIDE in run[3] and "Z" in run[2])
]
# Of these the plan is 6 to 7 % too high.
ROUGH = [
    *(run for run in RUNS if CHUNKED in run[3] and RING in run[3]),
    *(run for run in RUNS if run[0] == "deepspeed" and "keep=products" in run[3]),
    ("torch", 2, "F+R+Z3", f"{MIXED} {STAGES} {LONGER}"),
]


@pytest.mark.parametrize(
    "run",
    [slow(run) for run in EXACT if run not in ROUGH],
    ids=name_of,
)
def test_activations_shared_experts_and_tied_embeddings_take_what_the_plan_counts(
    observed: Callable[[str], Observed], run: Run
) -> None:
    made = plan(*run)
    fit = fit_of(made, made.batch.micro)
    assert fit is not None
    assert max(observed(name_of(run))["peaks"].values()) == pytest.approx(fit.tensors, rel=0.05)


@pytest.mark.parametrize("runs", [slow(tuple(RUNS))], ids=["all"])
def test_over_all_runs_the_plan_errs_by_little(observed: Callable[[str], Observed], runs: tuple[Run, ...]) -> None:
    """This is not so of each: tied ends of stages have an eighth less than is estimated."""
    off = []
    for run in runs:
        made = plan(*run)
        fit, most = fit_of(made, made.batch.micro), max(observed(name_of(run))["peaks"].values())
        assert fit is not None
        off.append(abs(fit.tensors / most - 1))
    print(f"{len(off)} runs: median {median(off):.1%}, 95 % below {quantiles(off, n=20)[-1]:.1%}")
    assert median(off) < 0.03
    assert quantiles(off, n=20)[-1] < 0.08


# The last of two stages, with the head: its logits are most.
LOGITS = f"{MIXED} {STAGES} {WIDE} data.seq_len=1024"
LAST = [
    ("torch", 1, "F", LOGITS),
    ("torch", 1, "F", f"{LOGITS} parallelism.schedule=gpipe"),
    ("torch", 1, "F+R", f"{LOGITS} {LOOPED} parallelism.schedule=looped_bfs"),
    ("torch", 2, "F+R+Z3", f"{LOGITS} batch.accumulation=2"),
    ("torch", 2, "F+Z2", LOGITS),
    ("torch", 8, "F+R+Z3", f"{LOGITS} {MOE} parallelism.ep=4"),
]


@pytest.mark.parametrize("last", [slow(run) for run in LAST])
def test_the_plan_knows_what_lives_on_a_pipelines_last_rank(observed: Callable[[str], Observed], last: Run) -> None:
    made = plan(*last)
    fit = fit_of(made, made.batch.micro)
    assert fit is not None
    assert max(observed(f"last {name_of(last)}")["peaks"].values()) == pytest.approx(fit.tensors, rel=0.05)


def test_a_rank_measures_from_its_first_step_to_its_summary(observed: Callable[[str], Observed]) -> None:
    found = observed("measured")
    assert (found["environment"]["device_name"], found["what_ran"]["device"]) == ("NVIDIA H200", "cuda:0")
    assert found["what_ran"]["attention_kernel"] == "aten::_scaled_dot_product_cudnn_attention"
    # The storages of fake tensors are on no device.
    assert sum(found["state_bytes"]["parameters"].values()) == 2 * found["parameters"]
    measured = [sample for sample in found["samples"] if not sample["warmup"]]
    assert len(measured) == 2
    for sample in measured:
        assert sample["t_end_s"] > sample["t_start_s"]
        assert sample["phases_s"].keys() == {"forward", "backward", "optimizer"}
