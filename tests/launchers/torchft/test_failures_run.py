"""Replicas that are really killed: they heal, or all start again, and end with equal weights."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.launchers.torchft.lives import read_steps
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.samples import StepSample, TrainingSummary, read_samples

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(find_spec("torchft") is None, reason="torchft is not installed: pip install '.[torchft]'"),
]
STEPS = 12
WORDS = (
    *("model=tiny", "hardware=cpu", "precision=fp32", "data.seq_len=32", "parallelism.dp=2"),
    *("measure.warmup_steps=2", f"measure.steps={STEPS - 2}", "measure.threads_per_rank=1"),
)


def run(folder: Path, *words: str, code: int = 0) -> RunFolder:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "300"}
    command = [sys.executable, "-m", "llmexp", *WORDS, "tracking=none", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == code, done.stdout + done.stderr
    (found,) = find_runs(folder / "outputs")
    return found


def samples(folder: RunFolder, rank: int) -> list[StepSample]:
    return read_samples(folder.repeat(0) / f"samples.{rank}.jsonl", StepSample)


def digests(folder: RunFolder) -> set[str]:
    paths = [folder.repeat(0) / f"rank.{rank}.json" for rank in (0, 1)]
    return {str(TrainingSummary.model_validate_json(path.read_text()).what_ran["state_digest"]) for path in paths}


def measured(folder: RunFolder) -> dict[str, float]:
    result = folder.result()
    assert isinstance(result, RunResult)
    return {name: metric.mean for name, metric in result.metrics.items() if metric}


def traced(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.repeat(0).glob("trace/*"))


def losses(folder: RunFolder) -> list[list[float]]:
    return [[one.loss for one in samples(folder, rank)] for rank in (0, 1)]


@pytest.mark.long
def test_a_killed_replica_heals_from_the_other_which_went_on(tmp_path: Path) -> None:
    folder = run(tmp_path, "engine=torchft", "method=F", "engine.options.kill_at_steps=[5]")
    found = measured(folder)
    result = folder.result()
    assert result is not None
    assert "flash" in str(result.what_ran["attention_kernel"])
    assert len(digests(folder)) == 1
    assert (found["failures"], found["measured_steps"]) == (1, STEPS - 2)
    assert found["redone_steps"] >= 1, "step 5"
    assert "deaths" in (folder.path.parent / "report.md").read_text(), "fewer than asked for are seen"
    assert (result.what_ran["data_passes"], result.what_ran["data_records"]) == (1.0, None)
    assert found["goodput_share"] > 0
    (death,) = [step for step in read_steps(folder.repeat(0), 1) if step.ended_s is None]
    again = next(step for step in read_steps(folder.repeat(0), 0) if step.step == 5 and step.sample)
    assert again.ended_s
    assert again.ended_s - death.began_s > 2, "the other one waits for the silence of 5 s"
    assert "killed, as step 5 asked for" in (folder.repeat(0) / "log.agent.txt").read_text()
    ours, theirs = samples(folder, 0), samples(folder, 1)
    assert [one.index for one in ours] == [one.index for one in theirs] == list(range(STEPS))
    assert all(one.positions == 32 for one in ours)
    assert theirs[0].positions == 32
    assert theirs[5].positions == 0
    assert theirs[5].loss == ours[5].loss
    assert ours[-1].phases_s
    assert sum(ours[-1].phases_s.values()) <= ours[-1].t_end_s - ours[-1].t_start_s
    assert traced(folder) == ["rank0.json.gz", "rank1.json.gz"]
    assert any(step.healed and step.life == 1 for step in read_steps(folder.repeat(0), 1)), "in the window or after it"


@pytest.mark.slow
def test_undisturbed_and_restarted_runs_have_the_losses_of_torchs_replicas(tmp_path: Path) -> None:
    restart = ("engine.options.recovery=restart", "engine.options.checkpoint_every_steps=3")
    bare = ("measure.profile=false", "measure.phases=false")
    runs = {
        "torch": ("engine=torch", *bare),
        "heal": ("engine=torchft", "engine.options.heartbeat_timeout_s=60", *bare),
        "restart": ("engine=torchft", *restart, *bare),
        "killed": ("engine=torchft", *restart, "engine.options.kill_at_steps=[5,8]"),
    }
    for name in runs:
        (tmp_path / name).mkdir()
    folders = {name: run(tmp_path / name, "method=F+R", *words) for name, words in runs.items()}
    expected = losses(folders["torch"])
    assert expected[0][-1] < expected[0][0]
    for name in ("heal", "restart", "killed"):
        assert losses(folders[name])[0] == pytest.approx(expected[0], abs=1e-6), name
        assert losses(folders[name])[1] == pytest.approx(expected[1], abs=1e-6), name
    assert digests(folders["heal"]) == digests(folders["restart"]) == digests(folders["killed"])
    assert len(digests(folders["killed"])) == 1
    found = measured(folders["killed"])
    # Step 5 is killed after a checkpoint of 3 steps, step 8 after one of 6.
    assert (found["failures"], found["redone_steps"], found["healed_replicas"]) == (2, 3 + 3, 0)
    assert found["mean_replicas"] == 2
    assert not (folders["killed"].repeat(0) / "checkpoint.pt").exists()
    assert traced(folders["killed"]) == ["rank0.json.gz", "rank1.json.gz"]
    assert traced(folders["heal"]) == []
    assert all(one.phases_s for one in samples(folders["killed"], 0))
    assert not any(one.phases_s for one in samples(folders["heal"], 0))


@pytest.mark.slow
def test_a_replica_that_ends_by_itself_ends_the_run(tmp_path: Path) -> None:
    words = ("engine=torchft", "engine.options.kill_at_steps=[5]", "optimizer=adafactor")
    folder = run(tmp_path, *words, "optimizer.target=torch.optim.NoSuchClass", code=1)
    result = folder.result()
    assert result is not None
    assert result.status is RunStatus.FAILED
    assert "NoSuchClass" in result.reason
    assert "was killed" not in (folder.repeat(0) / "log.agent.txt").read_text()
