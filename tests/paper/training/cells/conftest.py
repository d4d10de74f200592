from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from paper_runs import PURE, conf

from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric

Train = Callable[..., RunFolder]


@pytest.fixture
def on_a800(make_run) -> Train:
    """Make a run as the paper's, unless changed: 7B in bf16 on 8 x a800 at batch 1, which measured `speed` and `gb`."""
    papers = {
        "model": conf("model/7b"),
        "hardware__name": "a800",
        "hardware__memory_bytes": 85899345920,
        "precision": PURE,
    }

    def train(method: str = "Naive", speed: float = 0.0, gb: float = 0.0, **changes: Any) -> RunFolder:
        metrics: dict[str, Any] = {"tokens_per_s": changes.pop("rate", Metric(mean=speed))} if speed else {}
        metrics |= {"peak_allocated_bytes": gb * 1e9} if gb else {}
        status = changes.pop("status", "success" if speed else "oom")
        return make_run(method, status, metrics | changes.pop("metrics", {}), **(papers | changes))

    return train
