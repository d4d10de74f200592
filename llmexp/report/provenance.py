"""The provenance of a table: where and when its rows were measured, so that it can stand alone in a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from llmexp.record.environment import recorded_gpus
from llmexp.report.row import Row

# These libraries decide speed, in the order of reading; the run's folder has the whole environment.
_LIBRARIES = ("deepspeed", "transformers", "flash-attn", "triton", "bitsandbytes", "llmexp")
_DAY = len("2026-01-01")


def provenance(rows: Iterable[Row]) -> list[str]:
    """Return a line for each environment of the rows with a result: devices, driver, versions, commit, days (UTC)."""
    days: dict[str, set[str]] = {}
    for row in rows:
        if row.result and row.result.environment:
            days.setdefault(_described(row.result.environment), set()).add(row.result.ended_at[:_DAY])
    return [f"measured on {described}; {_span(sorted(found))}" for described, found in days.items()]


def _described(environment: Mapping[str, Any]) -> str:
    versions = environment.get("distributions") or {}
    libraries = [f"{name} {versions[name]}" for name in _LIBRARIES if name in versions]
    software = [f"{name} {environment[name]}" for name in ("torch", "cuda", "nccl", "python") if environment.get(name)]
    return ", ".join([*_devices(environment), *software, *libraries, *_commit(environment)])


def _commit(environment: Mapping[str, Any]) -> list[str]:
    checkout = (environment.get("git") or {}).get("llmexp") or {}
    changes = " with uncommitted changes" if checkout.get("dirty") else ""
    return [f"commit {checkout['commit'][:12]}{changes}"] if checkout.get("commit") else []


def _devices(environment: Mapping[str, Any]) -> list[str]:
    gpus = recorded_gpus(environment)
    if gpus and environment.get("device_type") != "cpu":
        names = [str(device["name"]) for device in gpus["devices"]]
        return [
            *(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)),
            f"driver {gpus['driver_version']}",
        ]
    cpu = environment.get("cpu") or {}
    return [f"{cpu.get('usable_cores')} cores of {cpu.get('model')}"]


def _span(days: list[str]) -> str:
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
