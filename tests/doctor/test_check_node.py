from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from llmexp.doctor import check_node as module
from llmexp.doctor.check_node import check_folder, check_governor, check_memory, check_ports, check_slurm, check_store
from llmexp.machine import bf16
from llmexp.record.digits import GIB


@pytest.mark.parametrize(("free_gib", "level"), [(0.5, "fail"), (5, "warn"), (50, "ok")])
def test_space_where_a_folder_will_be(tmp_path, monkeypatch, free_gib, level):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=free_gib * GIB))
    assert check_folder("outputs", tmp_path / "not" / "yet", "elsewhere").level == level
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_fails_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    finding = check_folder("outputs", tmp_path / "file", "set sweep.outputs")
    assert finding.level == "fail"
    assert finding.says.endswith(": set sweep.outputs")


@pytest.mark.parametrize(
    ("kind", "level"), [("ext4", "ok"), ("nfs4", "warn"), ("lustre", "warn"), ("fuse.sshfs", "warn")]
)
def test_sqlite_on_a_network_filesystem_is_warned_of_with_the_alternatives(tmp_path, mounted, kind, level):
    mounted(kind)
    finding = check_store(tmp_path / "outputs")
    assert finding.level == level
    assert kind in finding.says
    assert ("tracking=none" in finding.says) == (level == "warn")


def test_a_server_is_no_matter_of_filesystems(tmp_path, mounted, monkeypatch):
    mounted("nfs4")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert check_store(tmp_path).level == "ok"


def test_the_uis_port_may_be_taken(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(module, "UI_PORT", server.getsockname()[1])
        assert check_ports().level == "warn"
    assert check_ports().level == "ok"


@pytest.mark.parametrize(("here", "level"), [((), "ok"), (("sbatch", "srun"), "warn"), (module.SLURM_COMMANDS, "ok")])
def test_slurms_commands_are_all_there_or_none(tmp_path, monkeypatch, here, level):
    for name in here:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_slurm().level == level


@pytest.mark.parametrize(("limit_gib", "free_gib", "level"), [(16, 12, "ok"), (16, 1, "warn"), (2, 12, "warn")])
def test_memory_is_what_is_free_within_the_limit(monkeypatch, limit_gib, free_gib, level):
    monkeypatch.setattr(module, "host_memory_bytes", lambda: limit_gib * GIB)
    monkeypatch.setattr(module, "machine_memory_bytes", lambda: 16 * GIB)
    monkeypatch.setattr(module, "available_memory_bytes", lambda: free_gib * GIB)
    assert check_memory().level == level
    assert ("control group" in check_memory().says) == (limit_gib < 16)


@pytest.mark.parametrize(("governor", "level"), [("performance\n", "ok"), ("powersave\n", "warn"), (None, "ok")])
def test_a_governor_that_saves_power_is_warned_of(tmp_path, monkeypatch, governor, level):
    path = tmp_path / "scaling_governor"
    if governor:
        path.write_text(governor)
    monkeypatch.setattr("llmexp.machine.processor.GOVERNOR", path)
    assert check_governor().level == level


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("avx2", "precision=auto is fp32 on hardware=cpu; in bf16 matrix products take 10 or more times"),
        ("amx_bf16", "is bf16_mixed"),
    ],
)
def test_doctor_says_whether_the_processor_multiplies_bf16(tmp_path, monkeypatch, flags, says):
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: fpu {flags}\n")
    monkeypatch.setattr("llmexp.machine.processor.CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    bf16.cpu_lacks.cache_clear()
    found = module.check_bf16()
    bf16.cpu_lacks.cache_clear()
    assert (found.level, found.what) == ("ok", "bf16")
    assert says in found.says
