"""An atom of somebody else's package that changes memory and FLOPs is planned as what it does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.record.folder import find_runs

Llmexp = Callable[..., "subprocess.CompletedProcess[str]"]
TINY = ("model=tiny", "hardware=box", "precision=fp32", "engine=torch")


@pytest.fixture
def plan(installed: Path, llmexp: Llmexp) -> Callable[..., dict[str, Any]]:
    def planned(*words: str) -> dict[str, Any]:
        done = llmexp(installed, "plan", "--json", *words)
        assert done.returncode == 0, done.stderr
        made: dict[str, Any] = json.loads(done.stdout)["plan"]
        return made

    return planned


def test_half_of_the_layers_frozen_needs_less_of_everything(plan: Callable[..., dict[str, Any]]) -> None:
    naive, half = plan(*TINY, "method=Naive"), plan(*TINY, "method=H")
    assert half["parameters"] == naive["parameters"]
    trained = half["trainable_parameters"]
    assert half["memory"]["optimizer"]["device"] == 8 * trained < naive["memory"]["optimizer"]["device"]
    assert half["memory"]["gradients"]["device"] == 4 * trained
    assert half["memory"]["parameters"] == naive["memory"]["parameters"]
    assert half["memory"]["arithmetic"].endswith("; the lower half of the layers keeps no activations")
    # Two of four layers: query, key, value, output, and the three matrices of the MLP.
    frozen = 2 * (128 * (128 + 64 + 64 + 128) + 3 * 128 * 344)
    assert naive["flops_per_token"] - half["flops_per_token"] == 2 * frozen
    assert half["flops"]["computed"]["per_position"] < half["flops"]["per_position"]


@pytest.mark.ranks
@pytest.mark.slow
def test_what_ran_held_the_bytes_that_were_planned(installed: Path, llmexp: Llmexp, tmp_path: Path) -> None:
    # What grows with the square of the length is among the costliest operators, whatever disturbs the others.
    long = ("data.seq_len=1024", "model.max_positions=1024")
    words = (*TINY, *long, "method=H", "measure=smoke", "tracking=none", "measure.threads_per_rank=1")
    done = llmexp(installed, *words)
    assert done.returncode == 0, done.stderr
    (run,) = find_runs(tmp_path / "outputs")
    rank = json.loads((run.repeat(0) / "rank.0.json").read_text())
    plan = json.loads((run.path / "plan.json").read_text())
    assert (rank["parameters"], rank["trainable_parameters"]) == (plan["parameters"], plan["trainable_parameters"])
    states = ("parameters", "gradients", "optimizer")
    assert {name: rank["state_bytes"][name] for name in states} == {name: plan["memory"][name] for name in states}
    softmax = {kernel["name"]: kernel["calls"] for kernel in rank["what_ran"]["kernels"]}
    assert (softmax["aten::_softmax"], softmax["aten::_softmax_backward_data"]) == (4, 2)


def test_a_share_that_is_not_there_is_named_in_one_line(llmexp: Llmexp, tmp_path: Path) -> None:
    info = tmp_path / "guest-0.3.dist-info"
    info.mkdir()
    (tmp_path / "guest.py").write_text(
        "from llmexp.method import Atom\n"
        "W = Atom('W', 'w', {}, share='guest:ABSENT')\n"
        "V = Atom('V', 'v', {}, share='guest:W')\n"
    )
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[llmexp.atoms]\nW = guest:W\nV = guest:V\n")
    for method, said in (
        ("W", "cannot be loaded (AttributeError: module 'guest' has no attribute 'ABSENT')"),
        ("V", "is a Atom, not a Share"),
    ):
        done = llmexp(tmp_path, "plan", f"method={method}")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert said in done.stderr
