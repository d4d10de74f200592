"""AMD's GPUs and their driver, as amd-smi names them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from functools import cache
from typing import Any

from llmexp.machine.accelerators.gpu import Gpu, Vendor
from llmexp.machine.command import output

_TIMEOUT_S = 60.0
# Where ROCm installs its tools without putting them on PATH.
_ROCM = "/opt/rocm/bin"


class Amd(Vendor):
    """GPUs that ROCm drives, which torch calls cuda devices too."""

    name, tool, compiler = "AMD", "amd-smi", "hipcc"
    variables = (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))
    indices_only = True

    def gpus(self) -> tuple[Gpu, ...]:
        """Return all GPUs as amd-smi lists them."""
        return listed()


@cache
def listed() -> tuple[Gpu, ...]:
    """Return all GPUs; each process asks the tool once."""
    # The two commands number the GPUs alike.
    uuids = {entry.get("gpu"): entry.get("uuid") for entry in _amd_smi("list")}
    return tuple(_gpu(entry, str(uuids.get(entry.get("gpu")) or "")) for entry in _amd_smi("static"))


def _gpu(entry: dict[str, Any], uuid: str) -> Gpu:
    asic, driver = _part(entry, "asic"), _part(entry, "driver")
    limits = _part(entry, "limit")
    # Newer versions have a limit for each sensor of power.
    power = next((_value(one.get("socket_power_limit")) for one in limits.values() if isinstance(one, dict)), "")
    target = str(asic.get("target_graphics_version") or "")
    return Gpu(
        index=str(entry.get("gpu", "")),
        uuid=uuid,
        name=str(asic.get("market_name") or "AMD GPU"),
        memory_mebibytes=_value(_part(entry, "vram").get("size")),
        power_limit_watts=_value(limits.get("socket_power")) or power,
        driver_version=str(driver.get("version") or ""),
        architecture=target.partition(":")[0] if target.startswith("gfx") else None,
    )


def _part(entry: dict[str, Any], name: str) -> dict[str, Any]:
    found = entry.get(name)
    return found if isinstance(found, dict) else {}


def _value(measured: Any) -> str:
    """Return the number of {"value": 300, "unit": "W"}, or of a plain number; "" where there is none."""
    number = measured.get("value") if isinstance(measured, dict) else measured
    return str(number) if isinstance(number, int | float) else ""


def _amd_smi(command: str) -> list[dict[str, Any]]:
    """Return what amd-smi says of each GPU; empty where there is no tool, no driver or no answer in time."""
    tool = shutil.which(Amd.tool) or shutil.which(Amd.tool, path=_ROCM)
    answer = (output(tool, command, "--json", timeout_s=_TIMEOUT_S) if tool else None) or ""
    # It may print warnings before its answer.
    begins = min((at for at in map(answer.find, "[{") if at >= 0), default=len(answer))
    try:
        told = json.loads(answer[begins:] or "[]")
    except ValueError:
        return []
    entries: Iterable[Any] = told.get("gpu_data", ()) if isinstance(told, dict) else told
    return [entry for entry in entries if isinstance(entry, dict)]
