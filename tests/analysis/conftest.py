from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.record.result import RankSummary, StateBytes, StepSample

Write = Callable[..., Path]
STATE = {"parameters": StateBytes(device=40), "gradients": StateBytes(device=20), "optimizer": StateBytes(host=80)}


@pytest.fixture
def write_repeat(tmp_path: Path) -> Write:
    """Write one repeat: `ranks` maps a rank to its summary's fields, `samples` a rank to its (duration, positions, real tokens, loss) a step."""

    def write(index: int, ranks: dict[int, dict[str, Any]], samples: dict[int, list[tuple[float, int, int, float]]], warmup: int = 1) -> Path:
        folder = tmp_path / f"repeat.{index}"
        folder.mkdir(parents=True)
        for rank, fields in ranks.items():
            (folder / f"rank.{rank}.json").write_text(_summary(rank, fields).model_dump_json())
        for rank, steps in samples.items():
            (folder / f"samples.{rank}.jsonl").write_text("".join(_lines(steps, warmup)))
        return folder

    return write


def _summary(rank: int, fields: dict[str, Any]) -> RankSummary:
    known = {
        "window_wall_s": 1.0,
        "time_to_first_step_s": 2.0,
        "parameters": 1000,
        "trainable_parameters": 1000,
        "peak_rss_bytes": 500,
        "state_bytes": STATE,
        "what_ran": {},
    }
    return RankSummary(rank=rank, **(known | fields))


def _lines(steps: list[tuple[float, int, int, float]], warmup: int) -> list[str]:
    lines, start_s = [], 0.0
    for number, (duration_s, positions, real_tokens, loss) in enumerate(steps):
        phases_s = {"forward": duration_s / 4, "backward": duration_s / 2, "optimizer": duration_s / 8}
        sample = StepSample(
            step=number,
            warmup=number < warmup,
            t_start_s=start_s,
            t_end_s=start_s + duration_s,
            positions=positions,
            real_tokens=real_tokens,
            loss=loss,
            phases_s=phases_s,
        )
        lines.append(sample.model_dump_json() + "\n")
        start_s += duration_s
    return lines
