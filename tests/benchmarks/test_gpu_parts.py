"""The five parts of a GPU's first half hour: their words are planned here, and one is measured on the CPU."""

from __future__ import annotations

import sys
import tarfile
from argparse import Namespace
from pathlib import Path

import pytest
from marks import lacks

from benchmarks import gpu_parts
from benchmarks.gpu_parts import PART_S, Step, _commands, main, steps, together
from llmexp.cli.words import jobs_of

HARDWARE = {1: "h100", 3: "h200"}
PARTS = [(part, sequences) for part in gpu_parts.PARTS for sequences in HARDWARE]


@pytest.mark.parametrize(("part", "sequences"), PARTS)
def test_every_word_is_planned_and_nothing_is_skipped(part: int, sequences: int, tmp_path: Path) -> None:
    """None of them rots while there is no GPU."""
    for step in [*steps(part, sequences), *(together() if part == 1 else ())]:
        # The model of gpu_modules is as large as those that surely fit.
        _, (_, _, _, *typed), _ = gpu_parts._command(step, part, tmp_path)
        words = [*typed, f"hardware={HARDWARE[sequences]}", "hardware.devices_per_node=1"]
        jobs = jobs_of(Namespace(overrides=words, config_dir=None))
        assert [job.plan.skip for job in jobs] == [None] * len(jobs), step.name


@pytest.mark.parametrize(("part", "sequences"), PARTS)
def test_a_part_takes_six_minutes_at_most(
    part: int, sequences: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_parts, "_sequences", lambda: sequences)
    assert sum(max(limit_s for _, _, limit_s in at_once) for at_once in _commands(part, tmp_path)) <= PART_S


def test_the_tests_that_part_1_runs_are_there() -> None:
    root = Path(__file__).parents[2]
    assert not any(lacks((root / name).read_text(), "gpu") for name in gpu_parts.TESTS)


# What a sweep leaves, without a sweep.
LEAVE = """
import pathlib, sys
run = pathlib.Path(sys.argv[1]) / sys.argv[2] / "run"
(run / "trace").mkdir(parents=True)
for name in ("result.json", "trace/rank0.json.gz"):
    (run / name).write_text("")
"""


def test_steps_run_one_by_one_and_records_are_packed_after_each_without_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    packed_before = f"import pathlib, sys; sys.exit(not pathlib.Path({str(tmp_path)!r}, 'part2.tar.gz').exists())"
    programs = {"tiny": LEAVE, "next": packed_before, "late": "import time; time.sleep(60)"}

    def command(step: Step, part: int, into: Path) -> tuple[str, list[str], int]:
        return step.name, [sys.executable, "-c", programs[step.name], str(into), f"part{part}_tiny"], step.limit_s

    steps_of_it = [Step("tiny", 60, ""), Step("next", 60, ""), Step("late", 0, "")]
    monkeypatch.setattr(gpu_parts, "steps", lambda part, _: steps_of_it)
    monkeypatch.setattr(gpu_parts, "_command", command)
    assert main(["2", "--into", str(tmp_path)]) == 1
    said = capfd.readouterr().out
    assert "== tiny: exit code 0" in said
    assert "== next: exit code 0" in said
    assert "== late: exit code -15" in said
    with tarfile.open(tmp_path / "part2.tar.gz") as packed:
        names = packed.getnames()
    assert "part2_tiny/run/result.json" in names
    assert not any("trace" in Path(name).parts for name in names)
