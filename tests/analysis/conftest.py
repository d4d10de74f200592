from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.record.samples import StateBytes, TrainingSummary

Write = Callable[..., Path]
STATE = {"parameters": StateBytes(device=40), "gradients": StateBytes(device=20), "optimizer": StateBytes(host=80)}


@pytest.fixture
def write_repeat(tmp_path: Path, write_samples: Callable[..., None]) -> Write:
    """Write one repeat: `ranks` maps a rank to its summary's fields, `samples` a rank to its (duration, positions, real tokens, loss) a step."""

    def write(index: int, ranks: dict[int, dict[str, Any]], samples: dict[int, list[tuple[float, int, int, float]]], warmup: int = 1) -> Path:
        folder = tmp_path / f"repeat.{index}"
        folder.mkdir(parents=True)
        for rank, fields in ranks.items():
            (folder / f"rank.{rank}.json").write_text(_summary(rank, fields).model_dump_json())
        for rank, steps in samples.items():
            write_samples(folder, rank, [(duration_s, loss, *tokens) for duration_s, *tokens, loss in steps], range(warmup))
        return folder

    return write


def _summary(rank: int, fields: dict[str, Any]) -> TrainingSummary:
    known = {
        "window_wall_s": 1.0,
        "time_to_first_step_s": 2.0,
        "parameters": 1000,
        "trainable_parameters": 1000,
        "peak_rss_bytes": 500,
        "state_bytes": STATE,
        "what_ran": {},
    }
    return TrainingSummary(rank=rank, **(known | fields))
