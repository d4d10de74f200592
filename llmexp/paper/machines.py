"""Table I: the machines of the paper, and below them those that the runs were measured on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from llmexp.paper.printed import SOURCE, read_table
from llmexp.paper.views.names import TITLES, words_of
from llmexp.record.environment import recorded_gpus
from llmexp.report.columns import Column, ReportTable
from llmexp.report.references.view import View
from llmexp.report.row import Row

NAME = "table01"
_RIGHT = ("of GiB", "host GiB", "runs")
# Each heading with its place in the order in which columns go where there is no room.
_HEADERS = {"machine": 0, "GPUs": 0, "of GiB": 0, "CPU": 0, "host GiB": 2, "network": 1, "runs": 3}


def machines_view(rows: Sequence[Row]) -> View:
    """Return the paper's three machines and each one of the runs; its memory is printed in GB, and read as GiB."""
    own = Counter(_machine(row) for row in rows if row.result and row.result.environment)
    lines = [[*_printed(line), ""] for line in read_table("table01_hardware")]
    lines += [[*machine, str(runs)] for machine, runs in own.items()]
    title = f"{words_of(NAME)}, {TITLES[NAME]}" + ("" if own else ": as printed, no run here has one")
    columns = [
        Column(header, cells, header not in _RIGHT, place)
        for (header, place), cells in zip(_HEADERS.items(), zip(*lines, strict=True), strict=True)
    ]
    legend = [f"lines without runs: {SOURCE}; others: what the runs found, and the network that hardware= declares"]
    return View(NAME, ReportTable(title, columns, legend))


def _printed(line: Mapping[str, str]) -> tuple[str, ...]:
    gpus, processors = f"{line['gpus']} x {line['gpu']}", f"{line['cpus']} x {line['cpu']}"
    return line["hardware"], gpus, line["gpu_memory_gb"], processors, line["host_memory_gb"], line["network"]


def _machine(row: Row) -> tuple[str, ...]:
    assert row.result
    found, hardware = row.result.environment, row.plan.config.hardware
    devices: list[dict[str, Any]] = (recorded_gpus(found) or {}).get("devices", [])
    names = Counter(str(device["name"]) for device in devices)
    sizes = {f"{device['memory_mebibytes'] / 1024:.3g}" for device in devices if device.get("memory_mebibytes")}
    cpu = found.get("cpu") or {}
    cores = f", {cpu['physical_cores']} cores" if cpu.get("physical_cores") else ""
    host = f"{found['memory_bytes'] / 2**30:,.0f}" if found.get("memory_bytes") else ""
    gpus = " + ".join(f"{count} x {name}" for name, count in names.items()) or "none"
    return hardware.name, gpus, ", ".join(sorted(sizes)), f"{cpu.get('model') or '?'}{cores}", host, _network(row)


def _network(row: Row) -> str:
    return row.plan.config.hardware.interconnect or ""
