from __future__ import annotations

import pytest

from llmexp.report.table import build_report
from llmexp.report.text import markdown

WAITS = "makes the host wait for the GPU at every tensor's gradient; engine=torch never does"
AFTER = "reduces gradients after backward, not beside it"
MIXED = {"name": "bf16_mixed", "parameters": "bf16", "gradients": "bf16", "master": "fp32", "moments": "fp32"}
PURE = {"name": "bf16_pure"} | dict.fromkeys(("parameters", "gradients", "master", "moments"), "bf16")
OVERLAP = {"zero_optimization": {"overlap_comm": True}}


@pytest.mark.parametrize(
    ("method", "changes", "note"),
    [
        ("F", {"precision": MIXED}, WAITS),
        ("F", {"precision": PURE}, ""),
        ("F", {"precision": MIXED, "engine__name": "torch"}, ""),
        ("F", {"precision": MIXED, "hardware__name": "cpu", "hardware__device": "cpu"}, ""),
        ("Z2", {}, AFTER),
        ("Z2", {"parallelism__dp": 1}, ""),
        ("Z2", {"engine__options": OVERLAP}, ""),
        ("Z3", {}, ""),
    ],
)
def test_a_row_of_deepspeed_says_what_its_library_does_more_slowly(make_run, method, changes, note):
    wanted = {"hardware__name": "h100", "engine__name": "deepspeed", "parallelism__dp": 8} | changes
    text = markdown(build_report([make_run(method, metrics={"tokens_per_s": 100.0}, **wanted)]))
    assert [one for one in (WAITS, AFTER) if one in text] == ([note] if note else [])


@pytest.mark.parametrize(
    ("device", "update_s", "said"), [("cuda", 0.4, True), ("cuda", 0.2, False), ("cpu", 0.4, False)]
)
def test_a_row_whose_step_is_largely_the_update_says_what_makes_it_less(make_run, device, update_s, said):
    metrics = {"tokens_per_s": 100.0, "step_time_s": 1.0, "optimizer_time_s": update_s}
    run = make_run(
        "F",
        metrics=metrics,
        hardware__name="h100" if device == "cuda" else "cpu",
        hardware__device=device,
        engine__name="torch",
    )
    assert ("30% or more of a step is the optimizer's update" in markdown(build_report([run]))) is said
