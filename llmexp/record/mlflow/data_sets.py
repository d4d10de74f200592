"""The data set of a run as MLflow's input, by which its list of runs can be filtered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from llmexp.record.read_data import ReadData
from llmexp.record.redact import redact

if TYPE_CHECKING:
    from mlflow import MlflowClient

_CONTEXT, _TRAINING = "mlflow.data.context", "training"


def log_data(client: MlflowClient, run_id: str, data: ReadData | None) -> None:
    """Tell what a run reads; a second time changes nothing."""
    if data is None:
        return
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.exceptions import MlflowException

    place = json.dumps({"uri": redact(data.place)})
    dataset = Dataset(data.name, data.digest, "local", place, schema="{}", profile="{}")
    inputs = [DatasetInput(dataset, [InputTag(_CONTEXT, _TRAINING)])]
    try:
        client.log_inputs(run_id, inputs)
    except MlflowException:  # perhaps another driver made the data set first, and then it is found
        client.log_inputs(run_id, inputs)
