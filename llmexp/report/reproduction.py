"""Whether a second measurement of the same run says what the first one said."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.analysis.stability import RELEVANT
from llmexp.record.result import RunStatus, Stability
from llmexp.report.compare import Comparison

SPEED = "tokens_per_s"
# A single process knows the scatter of its own steps, not how far the next process is from it: simulated for up to 3 %.
FROM_ONE_PROCESS = 2 * RELEVANT
_WORDS = {"stable": "", "unstable": "unstable", "unknown": "of unknown stability"}
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
    verdict, other = judge_speeds(speed, first.stability, second.stability), _other_device(comparison)
    if verdict.reproduced is False and other:
        return Verdict(None, f"{_said(speed)}, but on another device: {other}")
    return verdict


def judge_speeds(ratio: float, first: Stability | None, second: Stability | None) -> Verdict:
    """Judge the second speed over the first. How often this errs is simulated: `python -m benchmarks.verdicts`."""
    doubts, said = _doubts(first, second), _said(ratio)
    if abs(ratio - 1) <= RELEVANT:
        return Verdict(True, f"{said}, within {RELEVANT:.0%}" + f", though {doubts}" * bool(doubts))
    if doubts or not first or not second:
        return Verdict(None, f"{said}, but {doubts}")
    if _overlap(first, second):
        return Verdict(None, f"{said}, but their 95 % intervals overlap: more steps or repeats make them narrower")
    if "steps" in (first.source, second.source) and abs(ratio - 1) <= FROM_ONE_PROCESS:
        return Verdict(None, f"{said}, but fresh processes may differ by that, and one repeat is one process: measure.repeats=3 tells")
    return Verdict(False, f"{said}, and their 95 % intervals are apart")


def _said(ratio: float) -> str:
    return f"{SPEED} is {ratio:.3f} of the first run's"


def _doubts(first: Stability | None, second: Stability | None) -> str:
    """Which measurements cannot be relied on; empty where both can."""
    words = [_WORDS[one.verdict if one else "unknown"] for one in (first, second)]
    if words[0] == words[1]:
        return words[0] and f"both measurements are {words[0]}"
    return " and ".join(f"the {name} measurement is {word}" for name, word in zip(("first", "second"), words, strict=True) if word)


def _other_device(comparison: Comparison) -> str:
    keys = _DEVICE_KEYS[comparison.a.plan["config"]["hardware"]["device"]]
    return ", ".join(f"{found.key} {found.a}, now {found.b}" for found in comparison.environment if found.key in keys)


def _overlap(a: Stability, b: Stability) -> bool:
    """Whether the intervals do, which every stable measurement has."""
    ends = a.tokens_per_s_low, a.tokens_per_s_high, b.tokens_per_s_low, b.tokens_per_s_high
    return None in ends or ((ends[0] or 0) <= (ends[3] or 0) and (ends[2] or 0) <= (ends[1] or 0))
