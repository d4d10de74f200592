"""The verdict on a second measurement of the same run: whether it agrees with the first one."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.analysis.sameness import is_another
from llmexp.record.result import RunStatus
from llmexp.report.compare import Comparison
from llmexp.report.equivalence import Answer

# These say in the environment which device computed, because hardware=cpu and hardware=gpu may be any.
_DEVICE_KEYS = {"cpu": ("cpu.model", "cpu.usable_cores"), "cuda": ("device_name",)}
_REPRODUCED: dict[Answer, bool | None] = {"same": True, "different": False, "unknown": None}


@dataclass(frozen=True)
class ReproductionVerdict:
    """A verdict; `reproduced` is None where the two runs cannot be compared."""

    reproduced: bool | None
    reason: str

    def __str__(self) -> str:
        word = {True: "reproduced", False: "NOT reproduced", None: "cannot tell"}[self.reproduced]
        return f"{word}: {self.reason}"


def judge(comparison: Comparison) -> ReproductionVerdict:
    """Compare the second run (b) with the first (a); a reproduced run has the same ending, work, training and speed."""
    first, second = comparison.a, comparison.b
    if first.state != second.state and not RunStatus(second.state).is_answer:
        return ReproductionVerdict(None, f"the first run ended {first.state}, this one {second.state}: {second.reason}")
    if first.state != second.state:
        return ReproductionVerdict(False, f"the first run ended {first.state}, this one {second.state}")
    if first.state != RunStatus.SUCCESS:
        return ReproductionVerdict(True, f"it ended {first.state} again")
    if not comparison.same_work:
        return ReproductionVerdict(
            None, "the work is not the same: " + ", ".join(difference.key for difference in comparison.work)
        )
    if is_another(training := comparison.training):
        return ReproductionVerdict(False, f"it did not do the same training: {training.reason}")
    speed, other = comparison.speeds, _other_device(comparison)
    if speed is None:
        return ReproductionVerdict(None, "such runs have no rate to judge; the table compares their limits")
    if speed.answer == "different" and other:
        return ReproductionVerdict(None, f"{speed.reason}, but on another device: {other}")
    return ReproductionVerdict(_REPRODUCED[speed.answer], speed.reason)


def _other_device(comparison: Comparison) -> str:
    keys = _DEVICE_KEYS[comparison.a.plan.config.hardware.device]
    return ", ".join(f"{found.key} {found.a}, now {found.b}" for found in comparison.environment if found.key in keys)
