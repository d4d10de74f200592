from __future__ import annotations

from pathlib import Path

import psutil

from llmexp.machine import memory


def test_this_machine_has_memory():
    assert 0 < memory.host_memory_bytes() <= psutil.virtual_memory().total


def test_smallest_limit_of_the_groups_around_counts(monkeypatch, tmp_path):
    files = {
        "/proc/self/cgroup": ["0::/outer/inner"],
        tmp_path / "outer/memory.max": ["4096"],
        tmp_path / "outer/inner/memory.max": ["max"],
    }
    _pretend(monkeypatch, tmp_path, files)
    assert memory.host_memory_bytes() == 4096


def test_version_1_groups_are_read_too(monkeypatch, tmp_path):
    _pretend(
        monkeypatch,
        tmp_path,
        {"/proc/self/cgroup": ["4:memory:/job", "3:cpu:/"], tmp_path / "memory/job/memory.limit_in_bytes": ["8192"]},
    )
    assert memory.host_memory_bytes() == 8192


def test_kills_of_the_group_and_of_the_machine_add_up(monkeypatch, tmp_path):
    events = ["low 5", "oom 3", "oom_kill 2"]
    _pretend(
        monkeypatch,
        tmp_path,
        {"/proc/self/cgroup": ["0::/job"], "/proc/vmstat": ["oom_kill 1"], tmp_path / "job/memory.events": events},
    )
    assert memory.oom_kills() == 3


def test_nothing_is_known_without_the_kernels_files(monkeypatch, tmp_path):
    _pretend(monkeypatch, tmp_path, {})
    assert memory.oom_kills() == 0
    assert memory.host_memory_bytes() == psutil.virtual_memory().total


def _pretend(monkeypatch, root: Path, files: dict) -> None:
    known = {Path(path): lines for path, lines in files.items()}
    monkeypatch.setattr(memory, "ROOT", root)
    monkeypatch.setattr(memory, "lines", lambda path: known.get(path, []))
