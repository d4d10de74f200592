"""Broken trainings are told from equal ones: real ranks, with the faults that the benchmark knows."""

from __future__ import annotations

import sys
from functools import cache

import pytest

from benchmarks.faults.sitecustomize import FAULTS
from benchmarks.trainings import BROKEN, HERE, PROTOCOL, TASKS, Training, trained
from benchmarks.trust_training import UNSEEN, training_verdicts
from llmexp.analysis.sameness import same_training
from llmexp.training.trained_run import TrainedRun


@cache
def did(fault: str = "", layout: str = f"engine=torch {BROKEN}") -> TrainedRun:
    variables = {"LLMEXP_FAULT": fault, "PYTHONPATH": str(HERE / "faults")} if fault else {}
    words = [*PROTOCOL, *TASKS["random"], "precision=fp32", "measure.warmup_steps=3", *layout.split()]
    found = trained(words, variables, sys.executable)
    assert found
    return found


@pytest.mark.slow
def test_other_engines_and_ranks_train_the_same() -> None:
    other = did(layout="engine=deepspeed parallelism.dp=2 batch.micro=4 method=F+R+Z3")
    found = same_training(did(), other)
    assert (found.answer, found.reason) == ("same", "")


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != UNSEEN])
def test_a_broken_training_is_another(fault: str) -> None:
    assert same_training(did(), did(fault)).answer == "different"


def test_the_rates_count_alarms_and_misses() -> None:
    known = {"requested": {}, "parameters_in": "fp32", "losses": [6.0], "sequences": ["0a"], "largest_update": 1e-3}
    equal = [TrainedRun.model_validate(known) for _ in range(3)]
    odd = equal[0].model_copy(update={"losses": [9.0]})
    unseen = equal[0]
    runs = [Training(task="random", precision="fp32", layout="", did=each) for each in (*equal, odd)]
    runs += [Training(task="random", precision="fp32", layout="", fault="unseen", did=unseen)]
    found = {figure.name: figure for figure in training_verdicts(runs)}
    assert found["equal trainings called different: fp32"].measured.mean == 50.0
    assert found["broken training called the same: unseen, fp32"].measured.mean == 75.0
