"""memory.optimizer_folder: optimizer states in files, their bytes as planned, and the losses of states in memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import HANG_S
from planning import make_plan
from torch import distributed

from llmexp.launch.ranks import LOOPBACK, listening
from llmexp.launchers.deepspeed import build
from llmexp.launchers.deepspeed.disk import lacking_disk, swap_folder
from llmexp.launchers.deepspeed.engine import ENGINE
from llmexp.launchers.deepspeed.swap_files import SwapFiles
from llmexp.record.result import to_json
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.prediction import unpredicted

# A rank of two updates three groups: two with files, and the last norms, which are too small for one.
WORDS = ("model.hidden_size=256", "model.intermediate_size=1024", "model.num_layers=2", "model.vocab_size=2048")
GROUPS = "engine.options.zero_optimization.sub_group_size=600000"
# In fp16 the first step overflows, and updates nothing.
SCALED = "precision=fp16 precision.initial_scale_power=17 measure.warmup_steps=2"


def plan(folder: Path | None, *words: str, method: str = "Z3+O") -> TrainingPlan:
    disk = [f"memory.optimizer_folder={folder}"] if folder else []
    short = ("data.seq_len=16", "measure=smoke", "measure.profile=false", "precision=fp32", "optimizer.lr=0.001")
    return make_plan("hardware=cpu", "parallelism.dp=2", f"method={method}", *WORDS, GROUPS, *short, *disk, *words)


@pytest.mark.parametrize(
    ("method", "words", "reason"),
    [
        ("Z2+O", (), "add Z3+O to the method"),
        ("Z3", (), "add Z3+O to the method"),
        ("L+Z3+O", ("task=finetune",), "leave them out"),
        ("Z3+O", ("optimizer=sgd",), "optimizer=adamw only, not sgd"),
        ("Z3+O", ("parallelism.dp=1", "parallelism.cp=2"), "set parallelism.cp=1"),
        ("Z3+O", ("model=tiny-moe",), "dense models like Llama"),
        ("Z3+O", ("runtime=docker", "runtime.image=made:1"), "runtime=docker are in a container"),
        ("Z3+O", ("engine=torch",), "engine=torch keeps no states on a disk: set engine=deepspeed"),
        ("Naive", ("engine=megatron",), "engine=megatron keeps no states on a disk: set engine=deepspeed"),
    ],
)
def test_what_cannot_keep_states_on_a_disk_is_skipped(
    tmp_path: Path, method: str, words: tuple[str, ...], reason: str
) -> None:
    skip = plan(tmp_path, *words, method=method).skip
    assert skip is not None
    assert skip.reason.startswith("memory.optimizer_folder: ")
    assert reason in skip.reason


def test_states_on_a_disk_leave_host_memory_but_for_buffers(tmp_path: Path) -> None:
    on_disk, in_memory = (plan(folder, "model=1b", "precision=bf16_mixed").memory for folder in (tmp_path, None))
    assert on_disk is not None
    assert in_memory is not None
    assert on_disk.optimizer.host < in_memory.optimizer.host / 1000
    assert on_disk.optimizer.disk + on_disk.optimizer.host == pytest.approx(in_memory.optimizer.host, rel=1e-3)
    assert on_disk.host < in_memory.host
    assert "; on disk 12 B optimizer states / 2" in on_disk.arithmetic


def test_other_disks_are_other_runs(tmp_path: Path) -> None:
    assert len({plan(folder).id for folder in (None, tmp_path, tmp_path / "other")}) == 3


def test_a_folder_that_cannot_hold_the_files_is_refused_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmexp.launchers.deepspeed.disk.filesystem", lambda folder: "ext4")
    assert lacking_disk(plan(tmp_path)) is None
    none = tmp_path / "none"
    assert ENGINE.unbuildable(plan(none)) == f"memory.optimizer_folder={none} is no folder on this node: create it"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "is not writable" in str(lacking_disk(plan(tmp_path)))
    monkeypatch.undo()
    monkeypatch.setattr("llmexp.launchers.deepspeed.disk.filesystem", lambda folder: "tmpfs")
    assert "is on tmpfs, which is memory: name a folder on a disk" in str(lacking_disk(plan(tmp_path)))
    monkeypatch.setattr("llmexp.launchers.deepspeed.disk.filesystem", lambda folder: "ext4")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10**7))
    assert "has 0.0 GiB free, and the states need" in str(lacking_disk(plan(tmp_path)))


def test_the_package_that_the_op_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_has_header", lambda compiler, name: False)
    assert build.needed_op(plan(tmp_path)) == "async_io"
    assert "this machine has no libaio.h (libaio-dev, or libaio-devel)" in str(build.unbuildable(plan(tmp_path)))


def test_the_compiler_tells_whether_it_finds_a_header() -> None:
    assert build._has_header("c++", "stdio.h")
    assert not build._has_header("c++", "no_such_header.h")


def test_speed_with_a_disk_is_not_predicted(tmp_path: Path) -> None:
    assert "whose speed is not predicted" in unpredicted(plan(tmp_path, "hardware=a800"))


def test_the_driver_removes_what_killed_ranks_left_of_this_run_alone(tmp_path: Path) -> None:
    made = plan(tmp_path)
    mine, anothers = (swap_folder(made, tmp_path / sweep / "run") for sweep in ("mine", "anothers"))
    assert mine
    assert anothers
    for folder in (mine, anothers):
        (folder / "zero_stage_3" / "optimizer" / "rank0").mkdir(parents=True)
    ENGINE.clean_up(made, tmp_path / "mine" / "run")
    assert list(tmp_path.iterdir()) == [anothers]


def test_a_rank_tells_and_removes_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, made = tmp_path / "disk", plan(tmp_path / "disk")
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(sys, "argv", ["worker", str(tmp_path / "run" / "repeat.0")])
    files = SwapFiles(made)
    zero = files.in_config(made.engine_config)["zero_optimization"]
    own, peers = (Path(zero["offload_optimizer"]["nvme_path"]) / "zero_stage_3/optimizer" / f"rank{n}" for n in (1, 0))
    sizes = {"0_4.tensor.swp": 1, "exp_avg-0_4.tensor.swp": 2, "0_4_gradient_0_9.tensor.swp": 4}
    for folder in (own, peers):
        folder.mkdir(parents=True)
        for name, size in sizes.items():
            (folder / name).write_bytes(bytes(size))
    assert files.bytes_by_kind() == {"gradients": 4, "optimizer": 3, "moments": 2}
    files.remove()
    assert not own.exists()
    assert len(list(peers.iterdir())) == len(sizes)
    shutil.rmtree(peers)
    SwapFiles(made)
    assert list(disk.iterdir()) == []


@pytest.mark.ranks
@pytest.mark.slow
@pytest.mark.parametrize("words", ["precision=fp32", "precision=bf16_mixed", SCALED])
def test_states_in_files_give_the_losses_of_states_in_memory(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    assert pytestconfig.cache
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytestconfig.cache.mkdir("xdg")))
    disk = tmp_path / "disk"
    disk.mkdir()
    with_files, in_memory = (plan(folder, *words.split()) for folder in (disk, None))
    if reason := ENGINE.unbuildable(with_files):
        pytest.skip(reason)
    files, steps = run(with_files, tmp_path / "files", build.prepare_ops(with_files))
    memory, expected = run(in_memory, tmp_path / "memory", {})

    assert [loss for loss, _ in steps] == pytest.approx([loss for loss, _ in expected], abs=1e-6)
    assert any(skipped for _, skipped in steps) == (words == SCALED)
    assert with_files.memory is not None
    planned = with_files.memory
    state, other = files["state_bytes"], memory["state_bytes"]
    assert state["optimizer"] == planned.optimizer.model_dump()
    assert state["gradients"] == planned.gradients.model_dump()
    assert state["swap_buffers"] == {"device": 0, "host": planned.swap_buffers, "disk": 0}
    assert other["optimizer"] == {"device": 0, "host": pytest.approx(planned.optimizer.disk, rel=0.01), "disk": 0}
    if words != SCALED:
        # A step reads and writes all states once, and the gradients beside them. What a skipped one wrote comes later.
        moved = planned.optimizer.disk + planned.gradients.disk
        assert files["what_ran"]["disk_read_bytes"] == pytest.approx(moved, rel=0.02)
        assert files["what_ran"]["disk_written_bytes"] == pytest.approx(moved, rel=0.05)
    assert list(disk.iterdir()) == []


def run(plan: TrainingPlan, folder: Path, variables: dict[str, str]) -> tuple[dict[str, Any], list[tuple[float, bool]]]:
    """Run a plan's own command; return what rank 0 sums up, and the loss of each step with whether it was skipped."""
    repeat = folder / "repeat.0"
    repeat.mkdir(parents=True)
    (folder / "plan.json").write_text(to_json(plan))
    with listening(LOOPBACK, 0) as free:
        port = free.getsockname()[1]
    command = plan.command.words(folder=repeat, address=LOOPBACK, port=port, node=0)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **plan.command.env, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, (repeat / "log.0.txt").read_text()[-4000:]
    lines = [json.loads(line) for line in (repeat / "samples.0.jsonl").read_text().splitlines()]
    steps = [(line["loss"], bool(line.get("skipped"))) for line in lines]
    return json.loads((repeat / "rank.0.json").read_text()), steps
