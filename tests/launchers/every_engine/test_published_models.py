"""The models of conf/model on 8 x h100: the bytes that are planned are those that a pretended rank holds (pretended).

In make test-all models have few layers, of the widths of the whole ones, as time grows with layers; in make test-sweeps
they are whole. What is planned is the allocator's peak: training state, gathered layers and gradients, activations.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from marks import tier
from planning import make_plan
from pretended.library import compile_with

from llmexp.record.installed import look
from llmexp.record.result import to_json
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

# cuDNN's attention is the fused kernel that takes such lengths, whichever version there is.
ON_EIGHT = ("hardware=h100", "engine=torch", "parallelism.dp=8", "data=synthetic", "data.seq_len=256")
FUSED, SHORT = "F+R+Z3", "config.num_hidden_layers"
# By model, with a degree where one is planned: the method, and layers that have every kind; DeepSeek-V3's first three
# are dense.
MODELS = {
    "llama3-8b": (FUSED, "num_layers", 4),
    "llama3-70b": (FUSED, "num_layers", 4),
    "llama-30b": (FUSED, "num_layers", 4),
    "qwen3-8b": (FUSED, "num_layers", 4),
    "qwen3-30b-a3b": (FUSED, SHORT, 4),
    "qwen3-30b-a3b parallelism.ep=8": (FUSED, SHORT, 4),
    "deepseek-v3": (FUSED, SHORT, 8),
    "moonlight-16b-a3b": (FUSED, SHORT, 4),
    "moonlight-16b-a3b parallelism.ep=4": (FUSED, SHORT, 4),
    # The kernels of F have no sinks.
    "gpt-oss-20b": ("R+Z3", SHORT, 4),
    "gemma3-1b": (FUSED, SHORT, 6),
    "olmo3-7b": (FUSED, SHORT, 4),
    "qwen3-next-80b-a3b": (FUSED, SHORT, 4),
    # It has no attention.
    "mamba2-2.7b": ("R+Z3", SHORT, 4),
}
QUICK = {("llama3-8b", False), ("olmo3-7b", False)}
CASES = [(name, whole) for whole in (False, True) for name in MODELS]
SHORTENED = {case for case in CASES if not case[1]}


def plan(name: str, whole: bool) -> TrainingPlan:
    method, key, layers = MODELS[name]
    fewer = () if whole else (f"model.{key}={layers}",)
    return make_plan(*ON_EIGHT, *f"model={name}".split(), f"method={method}", *fewer)


def planned_bytes(made: TrainingPlan) -> int:
    """The peak of the fit."""
    fit = fit_of(made, made.batch.micro)
    assert fit
    return fit.tensors


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[str, bool], int]:
    folder, compiler = tmp_path_factory.mktemp("pretended"), look().compiler
    if not compiler or sys.platform != "linux" or torch.version.cuda:
        pytest.skip("needs Linux, a C++ compiler and a torch without CUDA: where there is a GPU, make gpu")
    compile_with(compiler, folder / "cuda.so")
    mine = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    for name, whole in {(item.callspec.params["name"], item.callspec.params["whole"]) for item in mine}:
        (folder / f"{name} {whole}.plan.json").write_text(to_json(plan(name, whole)))
    done = subprocess.run(
        [sys.executable, "-m", "pretended.worker", str(folder / "cuda.so"), str(folder)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]

    def most(name: str, whole: bool) -> int:
        found: dict[str, Any] = json.loads((folder / f"{name} {whole}.plan.observed").read_text())
        return max(found["peaks"].values())

    return most


@pytest.mark.parametrize(("name", "whole"), [pytest.param(*case, marks=tier(case, QUICK, SHORTENED)) for case in CASES])
def test_a_rank_holds_what_is_planned_within_five_percent(
    held: Callable[[str, bool], int], name: str, whole: bool
) -> None:
    made = plan(name, whole)
    assert made.skip is None
    found, planned = held(name, whole), planned_bytes(made)
    print(f"{name} whole={whole} planned {planned / 1e9:.3f} GB held {found / 1e9:.3f} GB {planned / found - 1:+.2%}")
    assert planned == pytest.approx(found, rel=0.05)
