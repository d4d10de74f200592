"""Whether a second measurement of the same run says what the first one said."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.analysis.stability import RELEVANT
from llmexp.record.result import RunStatus, Stability
from llmexp.report.compare import Comparison
from llmexp.report.row import Row

SPEED = "tokens_per_s"
# What was computed on, in the environment: hardware=cpu and hardware=gpu may be any.
_DEVICE_KEYS = {"cpu": ("cpu.model", "cpu.usable_cores"), "cuda": ("device_name",)}


@dataclass(frozen=True)
class Verdict:
    """reproduced is None where the two runs cannot be held against each other."""

    reproduced: bool | None
    reason: str

    def __str__(self) -> str:
        word = {True: "reproduced", False: "NOT reproduced", None: "cannot tell"}[self.reproduced]
        return f"{word}: {self.reason}"


def judge(comparison: Comparison) -> Verdict:
    """Hold the second run (b) against the first (a): the same ending, the same work, and a speed within what they can tell apart."""
    first, second = comparison.a, comparison.b
    if first.state != second.state and not RunStatus(second.state).is_answer:
        return Verdict(None, f"the first run ended {first.state}, this one {second.state}: {second.reason}")
    if first.state != second.state:
        return Verdict(False, f"the first run ended {first.state}, this one {second.state}")
    if first.state != RunStatus.SUCCESS:
        return Verdict(True, f"it ended {first.state} again")
    if not comparison.same_work:
        return Verdict(None, "the work is not the same: " + ", ".join(difference.key for difference in comparison.work))
    speed = next(ratio.value for ratio in comparison.ratios if ratio.name == SPEED)
    assert speed is not None
    figures = f"{SPEED} is {speed:.3f} of the first run's"
    if abs(speed - 1) <= RELEVANT:
        return Verdict(True, f"{figures}, within {RELEVANT:.0%}")
    if _overlap(_stability(first), _stability(second)):
        return Verdict(True, f"{figures}, and their 95 % intervals overlap")
    unstable = [name for name, row in (("first", first), ("second", second)) if row.doubt]
    if unstable:
        return Verdict(None, f"{figures}, but unstable: the {' and the '.join(unstable)} measurement")
    if other := _other_device(comparison):
        return Verdict(None, f"{figures}, but on another device: {other}")
    return Verdict(False, f"{figures}, and their 95 % intervals are apart")


def _other_device(comparison: Comparison) -> str:
    keys = _DEVICE_KEYS[comparison.a.plan["config"]["hardware"]["device"]]
    return ", ".join(f"{found.key} {found.a}, now {found.b}" for found in comparison.environment if found.key in keys)


def _stability(row: Row) -> Stability | None:
    return row.result.stability if row.result else None


def _overlap(a: Stability | None, b: Stability | None) -> bool:
    if a is None or b is None or None in (a.tokens_per_s_low, a.tokens_per_s_high, b.tokens_per_s_low, b.tokens_per_s_high):
        return False
    return (a.tokens_per_s_low or 0) <= (b.tokens_per_s_high or 0) and (b.tokens_per_s_low or 0) <= (a.tokens_per_s_high or 0)
