"""How often "the same training" errs, over real runs: equal trainings in many layouts, and broken ones.

`python -m benchmarks.trainings` measured what the runs did. Each pair of equal ones is judged, and each broken one
beside each equal one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from benchmarks.figure import Figure
from benchmarks.rates import rate
from benchmarks.trainings import Training, read_trainings
from llmexp.analysis.sameness import DIFFERENT, SAME, same_training

# Limits in percent.
FALSE_ALARMS, MISSED = 2.0, 5.0
# Its thousandth of the parameters changes less than the order of a sum may.
UNSEEN = "norms without gradients"


def training_verdicts(runs: Sequence[Training] | None = None) -> Iterator[Figure]:
    """Yield the share of equal pairs that are called different, and of each fault's pairs that are called the same."""
    known = read_trainings() if runs is None else runs
    for precision in dict.fromkeys(run.precision for run in known):
        pairs = [pair for pair in combinations(known, 2) if _comparable(*pair) and pair[0].precision == precision]
        equal = [_answer(*pair) for pair in pairs if not pair[0].fault and not pair[1].fault]
        name = f"equal trainings called different: {precision}"
        yield rate(name, equal.count(DIFFERENT), len(equal), limit=FALSE_ALARMS)
        for fault in dict.fromkeys(run.fault for run in known if run.fault):
            answers = [_answer(*pair) for pair in pairs if sorted(run.fault for run in pair) == ["", fault]]
            if answers:
                name = f"broken training called the same: {fault}, {precision}"
                yield rate(name, answers.count(SAME), len(answers), limit=None if fault == UNSEEN else MISSED)


def _comparable(one: Training, other: Training) -> bool:
    return one.task == other.task and one.precision == other.precision


def _answer(one: Training, other: Training) -> str:
    return same_training(one.did, other.did).answer
