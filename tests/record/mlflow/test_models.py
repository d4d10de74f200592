"""The weights that a run kept, as models of MLflow that its own snippet loads."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml
from patience import HANG_S

from llmexp.record.mlflow import record_runs, store, sync
from llmexp.record.trackers import kept

CONFIGURATION = {"peft_type": "LORA", "base_model_name_or_path": "/models/mine"}


@pytest.fixture
def keep():
    """Add weights to a run, as its result says that it saved them."""

    def keep(folder, kind="adapter", size=100, **configuration):
        place = folder.repeat(0) / kind
        place.mkdir()
        (place / "adapter_config.json").write_text(json.dumps(CONFIGURATION | configuration))
        (place / "adapter_model.safetensors").write_bytes(b"x" * size)
        result = folder.result()
        saved = [*result.what_ran.get("saved", []), f"repeat.0/{kind}"]
        folder.write(folder.result_path, result.model_copy(update={"what_ran": {"saved": saved}}))
        return folder

    return keep


@pytest.fixture
def models(client):
    return lambda: client.search_logged_models([client.get_experiment_by_name("llmexp").experiment_id])


def test_an_adapter_becomes_a_model_of_its_run(make_run, keep, tracking, client, recorded, models):
    folder = keep(make_run())
    record_runs([folder], tracking)
    [run], [model] = recorded(), models()
    assert (str(model.status), model.source_run_id, model.model_type) == ("READY", run.info.run_id, "adapter")
    assert [(made.model_id, made.step) for made in run.outputs.model_outputs] == [(model.model_id, 24)]
    assert model.name.startswith("tiny Naive")
    assert model.params == run.data.params
    assert (model.tags["folder"], model.tags["base"]) == (str(folder.repeat(0) / "adapter"), "/models/mine")
    assert f'load_model("models:/{model.model_id}")' in model.tags["mlflow.note.content"]
    [data] = run.inputs.dataset_inputs
    assert {(one.key, one.value, one.dataset_name, one.dataset_digest) for one in model.metrics} == {
        ("tokens_per_s", 7000.0, data.dataset.name, data.dataset.digest)
    }
    assert len(client.get_metric_history(run.info.run_id, "tokens_per_s")) == 1


def test_a_models_files_are_its_own_and_not_the_runs(make_run, keep, tracking, client, recorded, models):
    record_runs([keep(make_run())], tracking)
    [run], [model] = recorded(), models()
    top = {item.path for item in client.list_logged_model_artifacts(model.model_id)}
    assert {"MLmodel", "code", "requirements.txt", "weights"} <= top
    assert {item.path for item in client.list_logged_model_artifacts(model.model_id, "weights")} == {
        "weights/adapter_config.json",
        "weights/adapter_model.safetensors",
    }
    assert "repeat.0/adapter" not in {item.path for item in client.list_artifacts(run.info.run_id, "repeat.0")}


def test_copying_twice_makes_nothing_twice(make_run, keep, tracking, recorded, models):
    folder = keep(make_run())
    record_runs([folder], tracking)
    first = [model.model_id for model in models()]
    assert sync([folder], tracking).unchanged == 1
    assert [model.model_id for model in models()] == first
    assert len(first) == 1


def test_a_run_that_was_measured_again_takes_its_models_with_it(make_run, keep, tracking, recorded, models):
    folder = keep(make_run())
    record_runs([folder], tracking)
    [first] = models()
    folder.write(folder.result_path, folder.result().model_copy(update={"stack": "fedcba987654"}))
    assert sync([folder], tracking).written == 1
    [run], [model] = recorded(), models()
    assert model.source_run_id == run.info.run_id != first.source_run_id


def test_what_an_interrupted_copy_left_is_no_model_of_the_next(make_run, keep, tracking, client, recorded, models):
    folder = keep(make_run())
    record_runs([folder], tracking)
    client.delete_tag(recorded()[0].info.run_id, "llmexp.digest")
    assert sync([folder], tracking).written == 1
    assert [model.source_run_id for model in models()] == [recorded()[0].info.run_id]


def test_large_weights_stay_where_they_are(make_run, keep, tracking, client, models, monkeypatch, outputs):
    monkeypatch.setattr(kept, "MOST_COPIED_BYTES", 1000)
    folder = keep(keep(make_run()), "model", size=1001)
    record_runs([folder], tracking)
    found = {model.model_type: model for model in models()}
    written = {kind: _configured(model) for kind, model in found.items()}
    assert written["adapter"]["weights"] == "weights"
    assert written["model"]["weights"] == str(folder.repeat(0) / "model")
    copies = list(outputs.rglob("mlartifacts/**/*.safetensors"))
    assert [path.stat().st_size for path in copies] == [100]


def _configured(model):
    with open(f"{model.artifact_location}/MLmodel") as file:
        return yaml.safe_load(file)["flavors"]["python_function"]["config"]


@pytest.mark.parametrize("saved", ["repeat.0/../../outside/adapter", "/etc", "repeat.0/log.0.txt", "repeat.7/adapter"])
def test_only_folders_of_weights_of_the_run_count(make_run, tracking, models, saved):
    folder = make_run()
    folder.write(folder.result_path, folder.result().model_copy(update={"what_ran": {"saved": [saved]}}))
    record_runs([folder], tracking)
    assert list(models()) == []


def test_a_link_out_of_the_folder_is_not_followed(make_run, tracking, models, tmp_path, outputs):
    folder = make_run()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "adapter_model.safetensors").write_bytes(b"secret")
    (folder.repeat(0) / "adapter").symlink_to(tmp_path / "secret")
    folder.write(folder.result_path, folder.result().model_copy(update={"what_ran": {"saved": ["repeat.0/adapter"]}}))
    record_runs([folder], tracking)
    assert list(models()) == []
    assert [path for path in outputs.rglob("*") if path.is_file() and path.read_bytes() == b"secret"] == []


SNIPPET = """
import sys, mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1])
asked = pandas.DataFrame({"prompt": ["a", "bc"]})
for address in sys.argv[2:]:
    loaded = mlflow.pyfunc.load_model(address)
    print(len(loaded.input_example), *map(repr, loaded.predict(asked, {"max_new_tokens": 5})))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adapter", "model"])
def test_mlflows_own_snippet_loads_a_model_that_generates(
    make_run, tracking, models, recorded, tmp_path, outputs, kind
):
    """A made-up model of bytes, whose adapter changes what it says."""
    folder = make_run(data={"name": "text", "seq_len": 32, "tokenizer": "bytes"})
    weights = folder.repeat(0) / kind
    said = subprocess.run(
        [sys.executable, "-c", MAKE, str(tmp_path / "base"), str(weights), kind],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    ).stdout.splitlines()[-1]
    folder.write(folder.result_path, folder.result().model_copy(update={"what_ran": {"saved": [f"repeat.0/{kind}"]}}))
    record_runs([folder], tracking)
    [model], [run] = models(), recorded()
    addresses = (f"models:/{model.model_id}", f"runs:/{run.info.run_id}/{model.name}")
    loaded = subprocess.run(
        [sys.executable, "-c", SNIPPET, store.resolve_uri(tracking, outputs), *addresses],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert loaded.stdout.splitlines() == [f"1 {said}"] * 2, loaded.stderr


MAKE = """
import sys, torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
base, place, kind = sys.argv[1:]
torch.manual_seed(0)
sizes = dict(vocab_size=257, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2))
model.save_pretrained(base)
if kind == "adapter":
    model.name_or_path = base
    model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "lm_head"], init_lora_weights=False))
    model.peft_config["default"].base_model_name_or_path = base
model.save_pretrained(place)
said = []
for prompt in (b"a", b"bc"):
    ids = torch.tensor([list(prompt)])
    found = model.eval().generate(input_ids=ids, max_new_tokens=5, do_sample=False, eos_token_id=256, pad_token_id=256)
    said.append(bytes(t for t in found[0, len(prompt):].tolist() if t < 256).decode(errors="replace"))
print(*map(repr, said))
"""
