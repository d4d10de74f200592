"""The files that make a folder of weights a model of MLflow, which `mlflow.pyfunc.load_model` loads.

They are written as text: MLflow's own ways to write a model import pandas, and load the weights with torch.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from llmexp.record.trackers.content import RunContent
from llmexp.record.trackers.kept import KeptWeights

# The loader's name in a model's folder, which has to be that of no other module.
LOADER = "llmexp_generating"
WEIGHTS = "weights"
# What the loader imports; the versions are those of the run.
_NEEDS = ("torch", "transformers", "peft", "mlflow")
_SIGNATURE = {
    "inputs": [{"type": "string", "name": "prompt", "required": True}],
    "outputs": [{"type": "string", "required": True}],
    "params": [{"name": "max_new_tokens", "default": 64, "shape": None, "type": "long"}],
}
_PROMPT = "Once upon a time"
_EXAMPLE = {"columns": ["prompt"], "data": [[_PROMPT]]}


def model_files(content: RunContent, kept: KeptWeights, run_id: str, model_id: str) -> dict[str, str]:
    """Return the texts beside the weights, by name; weights that are not copied are loaded from the run's folder."""
    needs = _requirements(content.environment)
    described = _described(content, kept, {"run_id": run_id, "model_id": model_id, "model_uuid": model_id})
    config = {
        WEIGHTS: WEIGHTS if kept.is_copied else str(kept.folder.resolve()),
        "base": kept.base,
        "tokenizer": content.plan.tokenizer,
    }
    described["flavors"]["python_function"]["config"] = config
    return {
        "MLmodel": yaml.safe_dump(described | {"artifact_path": f"models:/{model_id}"}),
        f"code/{LOADER}.py": _loader().read_text(),
        "input_example.json": json.dumps(_EXAMPLE),
        "requirements.txt": "".join(f"{line}\n" for line in needs),
        "python_env.yaml": yaml.safe_dump({"python": _python(content), "dependencies": ["-r requirements.txt"]}),
    }


def model_note(kept: KeptWeights, model_id: str) -> str:
    """Return the text on the model's page, in Markdown: the page of a model has no code that loads it."""
    of = f" for {kept.base}" if kept.base else ""
    place = "" if kept.is_copied else f" Its weights stay in {kept.folder.resolve()}, from where it is loaded."
    kind = {"adapter": "An adapter", "model": "A model"}[kept.kind]
    return f"""{kind}{of}.{place}

    import mlflow
    import pandas as pd

    model = mlflow.pyfunc.load_model("models:/{model_id}")
    model.predict(pd.DataFrame({{"prompt": ["{_PROMPT}"]}}), {{"max_new_tokens": 64}})
"""


def _described(content: RunContent, kept: KeptWeights, ids: dict[str, str]) -> dict[str, Any]:
    from mlflow.version import VERSION

    flavor = {
        "loader_module": LOADER,
        "code": "code",
        "env": {"virtualenv": "python_env.yaml"},
        "python_version": _python(content),
        "streamable": False,
    }
    described: dict[str, Any] = {
        "flavors": {"python_function": flavor},
        "mlflow_version": VERSION,
        "model_size_bytes": kept.size_bytes,
        "saved_input_example_info": {
            "artifact_path": "input_example.json",
            "type": "dataframe",
            "pandas_orient": "split",
        },
        "signature": {name: json.dumps(part) for name, part in _SIGNATURE.items()},
        "utc_time_created": str(datetime.fromtimestamp(content.window.end_s, UTC).replace(tzinfo=None)),
    }
    return described | ids


def _requirements(environment: Mapping[str, Any]) -> list[str]:
    """Return what to install; a version such as 2.13.0+cpu is on no index under its whole name."""
    versions = environment.get("distributions") or {}
    return [f"{name}=={version.partition('+')[0]}" if (version := versions.get(name)) else name for name in _NEEDS]


def _python(content: RunContent) -> str:
    return str(content.environment.get("python") or "3.11")


def _loader() -> Path:
    """Return the loader's source, which stands alone: the driver imports none of what it needs."""
    spec = importlib.util.find_spec("llmexp.launchers")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) / "models" / "generating.py"
