"""What makes a server fit: the fewest changes, each by itself."""

from __future__ import annotations

import pytest

from llmexp.serving.task import SERVE
from tests.serving.advice.served_options import served


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("model=70b", "hardware=h100"), ["parallelism.tp=4", "engine.options.quantization=awq"]),
        (("model=13b", "hardware=rtx4090"), ["parallelism.tp=2", "engine.options.quantization=fp8"]),
        (("model=70b", "hardware=rtx4090", "hardware.devices_per_node=1"), []),
        (
            ("model=70b", "hardware=rtx4090", "hardware.devices_per_node=4"),
            ["parallelism.tp=2 engine.options.quantization=awq"],
        ),
        (("model=tiny", "hardware=cpu"), []),
    ],
)
def test_each_change_makes_it_fit(words, changes) -> None:
    plan = served(*words, *(() if "hardware=cpu" in words else ("engine=vllm",)))
    assert SERVE.fitting(plan) == changes
    for change in changes:
        fit = SERVE.fit(served(*words, "engine=vllm", *change.split()))
        assert fit
        assert fit.verdict == "yes"
