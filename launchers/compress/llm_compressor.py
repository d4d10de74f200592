"""Starts llm-compressor in an environment of its own, which cannot have llmexp's transformers, and reads its answer."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from llmexp.compress.plan import CompressPlan
from llmexp.errors import NO_MEMORY, LlmexpError
from llmexp.launch.spawn import Agent
from llmexp.launchers.compress.text import SplitText
from llmexp.launchers.rank.frame import Rank

PROGRAM = Path(__file__).with_name("oneshot.py")
SMOOTHING = 0.5
LOOK_S = 60.0
# A model's folder and tokens are all that it needs; whatever asks for the network would wait for its timeouts.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
RANKS_OWN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class CompressorError(LlmexpError):
    """llm-compressor has not compressed the model; the message is a line, and the rank's log has the rest."""


def run(plan: CompressPlan, rank: Rank, text: SplitText, source: Path, folder: Path) -> dict[str, Any]:
    """Compress the model of a folder into another; return the program's answer.

    Raises CompressorError with its error, MemoryError where it had too little memory.
    """
    job = rank.folder / "job.json"
    told = rank.folder / "answer.json"
    told.unlink(missing_ok=True)
    job.write_text(json.dumps(_job(plan, text, source, folder) | {"answer": str(told.absolute())}))
    python = plan.engine_config.get("python") or sys.executable
    with Agent([python, str(PROGRAM), str(job.absolute())], _environment(), rank.log_path) as agent:
        while not agent.ends_within(LOOK_S):
            pass
        code = agent.stop()
    answer = json.loads(told.read_text()) if told.exists() else {"error": f"its process ended with exit code {code}"}
    if code or "error" in answer:
        raise _error(answer.get("error", f"exit code {code}"))
    found: dict[str, Any] = answer
    return found


def _error(said: str) -> Exception:
    line = f"llm-compressor: {' '.join(said.split())}"
    return MemoryError(line) if NO_MEMORY.search(line) else CompressorError(line)


def _job(plan: CompressPlan, text: SplitText, source: Path, folder: Path) -> dict[str, Any]:
    compress = plan.config.compress.model_dump()
    smoothing = compress.get("smoothing") or SMOOTHING
    return compress | {
        "smoothing": smoothing,
        "modifier": plan.engine_config.get("modifier", {}),
        "model": str(source.absolute()),
        "trust_remote_code": plan.config.model.trust_remote_code,
        "device": plan.config.hardware.device,
        "threads": torch.get_num_threads(),
        "seed": plan.config.seed,
        "calibration": text.calibration,
        "held_out": text.held_out_parts,
        "folder": str(folder.absolute()),
    }


def _environment() -> dict[str, str]:
    """Return this process's environment without the variables of a rank; nothing here may replace its libraries."""
    return {name: value for name, value in os.environ.items() if name not in RANKS_OWN} | OFFLINE
