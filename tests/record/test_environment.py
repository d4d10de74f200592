import json
import subprocess
import sys
from pathlib import Path

import pytest

from llmexp.machine.accelerators.nvidia import listed
from llmexp.record.environment import DISTRIBUTIONS, capture, device_model, stack_digest
from llmexp.record.installed import look

HERE = look(DISTRIBUTIONS)

SMI = """#!/bin/sh
echo "0, GPU-a, NVIDIA H200, 143771, 700.00, 570.86.15"
echo "1, GPU-b, NVIDIA H200, 143771, 700.00, 570.86.15"
"""


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A machine whose nvidia-smi names two GPUs."""
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    listed.cache_clear()
    yield
    listed.cache_clear()


def test_capture_is_json_and_says_what_ran_where():
    captured = json.loads(json.dumps(capture(HERE)))
    assert captured["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"llmexp", "pydantic"} <= captured["distributions"].keys()
    assert captured["cpu"]["logical_cores"] >= captured["cpu"]["usable_cores"] >= 1
    assert captured["memory_bytes"] > 0


def test_capture_does_not_import_torch():
    imports = "import sys; from llmexp.record.environment import capture; from llmexp.record.installed import look"
    script = f"{imports}; capture(look()); sys.exit('torch' in sys.modules or 'mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_gpus_are_named_by_the_driver(two_gpus):
    gpus = capture(HERE)["gpus"]
    device = {"name": "NVIDIA H200", "memory_mebibytes": "143771", "power_limit_watts": "700.00"}
    assert gpus == {"vendor": "NVIDIA", "driver_version": "570.86.15", "devices": [device, device]}
    assert device_model("cuda") == "NVIDIA H200"
    assert device_model("cpu") != "NVIDIA H200"


def test_only_listed_variables_are_captured(monkeypatch):
    for name in ("NCCL_DEBUG", "FOO_TOKEN", "NCCL_AUTH_TOKEN", "HOME_ADDRESS"):
        monkeypatch.setenv(name, f"value-of-{name}")
    captured = capture(HERE)
    assert captured["variables"]["NCCL_DEBUG"] == "value-of-NCCL_DEBUG"
    assert json.dumps(captured).count("value-of") == 1


def test_the_stack_changes_with_device_versions_and_worker_sources(tmp_path):
    source = tmp_path / "loop.py"
    source.write_text("a = 1")
    base = stack_digest([source], {"pydantic": "2.0"}, "A800")
    assert len(base) == 12
    assert stack_digest([source], {"pydantic": "2.0"}, "A800") == base
    others = stack_digest([source], {"pydantic": "2.0"}, "H200"), stack_digest([source], {"pydantic": "2.1"}, "A800")
    source.write_text("a = 2")
    assert len({base, *others, stack_digest([source], {"pydantic": "2.0"}, "A800")}) == 4
