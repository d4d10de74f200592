"""A run's data set, where another driver makes the same one at the same time."""

from __future__ import annotations

import pytest
from mlflow.exceptions import MlflowException

from llmexp.record.mlflow.data_sets import log_data
from llmexp.record.read_data import ReadData


class Racing:
    """A client whose first calls find that somebody else is making the data set."""

    def __init__(self, lost: int) -> None:
        self.lost, self.logged = lost, []

    def log_inputs(self, run_id, inputs) -> None:
        if self.lost:
            self.lost -= 1
            raise MlflowException("UNIQUE constraint failed: datasets.experiment_id, datasets.name")
        self.logged.append((run_id, inputs[0].dataset.digest))


DATA = ReadData(name="mine", digest="abc", place="mine.jsonl")


def test_a_lost_race_is_tried_again() -> None:
    client = Racing(lost=1)
    log_data(client, "run", DATA)
    assert client.logged == [("run", "abc")]


def test_what_fails_twice_is_told() -> None:
    with pytest.raises(MlflowException):
        log_data(Racing(lost=2), "run", DATA)


def test_a_run_without_data_logs_none() -> None:
    client = Racing(lost=0)
    log_data(client, "run", None)
    assert client.logged == []
