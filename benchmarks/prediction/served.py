"""Published measurements of servers: one printed number a row, as a load on a server whose outcome can be predicted."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.reading import read_architecture
from llmexp.schema import HardwareConfig
from llmexp.serving.predict.batching import Limits, Load, LoadOutcome, Server
from llmexp.serving.predict.held import Formats, Held, held
from llmexp.serving.predict.limits import PREFILL, cache_room, most_at_once
from llmexp.serving.predict.rates import Loop, peaks_of, rates_of, without_graphs

PUBLISHED = Path("benchmarks/published_serving.csv")
_MODELS = Path(__file__).with_name("served_models.yaml")
# Where a source does not print how many tokens it sent or asked for.
_UNPRINTED = 128
_MILLI = 1e-3
_UNLIMITED = 10**6
# Engines without a scheduler in Python, or without a server.
_LEAN = (
    "tensorrt_llm",
    "lmdeploy",
    "gpt-fast",
    "mlc",
    "exllama",
    "exllamav2",
    "optimum-nvidia",
    "autoawq",
    "deepspeed",
    "llama_cpp",
)
# Servers of 2023, before they had CUDA graphs; and one of before its scheduler was rewritten.
_EAGER = (("tgi", "1.0.3"), ("vllm", "0.1.2"), ("tgi", "dev-20231219"), ("vllm", "dev-20231219"))
_OLD = (*_EAGER, ("vllm", "0.5.4"), ("vllm", "0.4.1"))
# It had no attention of its own for AMD's cards yet (vllm pull request 8310).
_OLD_ON_AMD = ("vllm", "0.6.1")
# The first versions that schedule beside the device unless told otherwise (vllm pull request 27614; SGLang's release
# of December 2024). What prints no version is taken to be older.
_OVERLAPPED = {"vllm": (0, 14), "sglang": (0, 4)}


@dataclass(frozen=True)
class Measured:
    """A printed number with its server and load."""

    row: Mapping[str, str]
    held: Held
    load: Load
    value: float

    @property
    def source(self) -> str:
        """Who measured."""
        return self.row["source"]

    def __str__(self) -> str:
        row = self.row
        cards = f" x {row['cards']}" if row["cards"] != "1" else ""
        load = f"{row['load']} {row['load_value']}".strip()
        server = f"{row['source']}: {row['model']} {row['weights']}, {row['hardware']}{cards}, {row['engine']}"
        return f"{server}, {row['input_tokens']} in, {row['output_tokens']} out, {load}: {row['metric']}, {row['unit']}"

    @property
    def is_old(self) -> bool:
        """Tell whether the server is older than the ones that are predicted."""
        engine = self.row["engine"], self.row["version"]
        return engine in _OLD or (engine == _OLD_ON_AMD and hardware(self.row["hardware"]).is_amd)

    @property
    def is_impossible(self) -> bool:
        """Tell whether the number is beyond the peaks of the device's data sheet, so that it is not what it says."""
        ideal = self._printed(self._ideal_server(), replace(self.load, varied=False))
        return ideal > self.value if self.is_time else ideal < self.value

    @property
    def is_time(self) -> bool:
        """Tell whether a smaller number is better."""
        return self.metric in ("tpot", "ttft", "latency")

    @property
    def metric(self) -> str:
        """What was measured: throughput, tpot, ttft, latency of a whole batch, or decode without prompts."""
        return self.row["metric"]

    @property
    def kind(self) -> str:
        """The metric that a user sees: a rate of tokens, or one of two latencies."""
        return self.metric if self.metric in ("tpot", "ttft") else "throughput"

    def predicted(self, fitted: Mapping[str, float]) -> float:
        """Return the number in the row's unit that these constants predict."""
        return self._printed(self.server(fitted))

    def server(self, fitted: Mapping[str, float] | None = None) -> Server:
        """Return the server with these constants."""
        row, machine = self.row, hardware(self.row["hardware"])
        engine = row["engine"], row["version"]
        rates = rates_of(machine, row["weights"], loop_of(*engine), self.held.cards, fitted)
        if row["engine"] == "transformers" or engine in _EAGER:
            rates = without_graphs(rates, fitted)
        room = float(row["kv_gib"]) * 2**30 if row["kv_gib"] else cache_room(machine, self.held.weights_bytes)
        most = most_at_once(row["engine"], machine)
        return Server(self.held, rates, Limits(most, PREFILL, room))

    def _ideal_server(self) -> Server:
        """Return a server at the peaks of the data sheet, with all memory that the weights leave."""
        machine = hardware(self.row["hardware"])
        peaks = peaks_of(machine, self.row["weights"], self.held.cards)
        rates = replace(peaks, link_per_s=float(machine.interconnect_bandwidth_bytes_per_s or 1.0))
        room = float(machine.memory_bytes or 0) - self.held.weights_bytes
        return Server(self.held, rates, Limits(_UNLIMITED, PREFILL, room))

    def _printed(self, server: Server, load: Load | None = None) -> float:
        found = server.outcome(load or self.load)
        return found.in_flight / found.spent.whole if self.metric == "decode" else self._of(found)

    def _of(self, found: LoadOutcome) -> float:
        unit, load = self.row["unit"], self.load
        if self.metric in ("tpot", "ttft"):
            seconds = found.tpot_s if self.metric == "tpot" else found.ttft_s
            return seconds / (_MILLI if unit == "ms" else 1.0)
        if self.metric == "latency":
            return found.in_flight / found.requests_per_s
        tokens = load.output + (load.prompt if unit.startswith("input and") else 0.0)
        rate = found.requests_per_s * (1.0 if unit == "requests/s" else tokens)
        return rate / (self.held.cards if unit.endswith("/GPU") else 1.0)


def measured(path: Path = PUBLISHED) -> list[Measured]:
    """Return all rows of the file."""
    return [_of_row(row) for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())]


def loop_of(engine: str, version: str) -> Loop:
    """Return how an engine schedules its iterations."""
    if engine in _LEAN:
        return "lean"
    first = _OVERLAPPED.get(engine)
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return "overlapped" if first and not version.startswith("dev") and numbers >= first else "python"


@cache
def hardware(name: str) -> HardwareConfig:
    """Return the data sheet of a device."""
    return HardwareConfig.model_validate(_sheet(name))


def _sheet(name: str) -> dict[str, Any]:
    """Return the keys of a file of hardware, over those of the file that it changes."""
    own: Any = OmegaConf.to_container(OmegaConf.load(f"conf/hardware/{name}.yaml"))
    changed = next((other for other in own.pop("defaults", ()) if other != "_self_"), None)
    return (_sheet(changed) if changed else {}) | own


@cache
def architecture(name: str) -> Architecture:
    """Return the layers of a model."""
    models: dict[str, Any] = yaml.safe_load(_MODELS.read_text(encoding="utf-8"))
    return read_architecture(models[name])


def _of_row(row: Mapping[str, str]) -> Measured:
    formats = Formats(row["weights"], 2, 1 if row["kv_cache"] == "fp8" else 2)
    load = Load(
        prompt=float(row["input_tokens"] or _UNPRINTED),
        output=float(row["output_tokens"] or _UNPRINTED),
        varied=row["lengths"] == "varied",
        requests=int(row["requests"]) if row["requests"] else None,
    )
    if row["load"] == "rate":
        load = replace(load, rate_per_s=float(row["load_value"]))
    elif row["load"] == "concurrency":
        load = replace(load, concurrency=int(row["load_value"]))
    return Measured(row, _held(row["model"], int(row["cards"]), formats), load, float(row["value"]))


@cache
def _held(model: str, cards: int, formats: Formats) -> Held:
    return held(architecture(model), cards, formats)
