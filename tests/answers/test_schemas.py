"""What plan, report and compare print as JSON is what their schemas say."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.answers.schemas import ANSWERS
from llmexp.record.result import Metric

Llmexp = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tokens(mean: float) -> dict[str, Metric]:
    return {"tokens_per_s": Metric(mean=mean, std_between_repeats=0.002 * mean, n=5)}


@pytest.fixture
def sweeps(make_run: Any) -> list[Path]:
    for name, mean in (("before", 100.0), ("after", 90.0)):
        for method in ("Naive", "R"):
            made = make_run(method, metrics=tokens(mean), sweep__name=name)
    return [made.path.parents[1] / name for name in ("before", "after")]


def holds(schema: Any, value: Any, root: dict[str, Any]) -> bool:
    """Tell whether a value is what a schema says, as far as schemas of pydantic say it."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        found: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return holds(found, value, root)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return any(holds(each, value, root) for each in choices)
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [schema.get("const")])
    kinds = {"string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict}
    kind = schema.get("type")
    if kind is not None and not (value is None if kind == "null" else isinstance(value, kinds[kind])):
        return False
    if kind == "array":
        return all(holds(schema.get("items", {}), each, root) for each in value)
    if kind == "object":
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        return set(schema.get("required", ())) <= value.keys() and all(
            holds(known.get(name, others), each, root) for name, each in value.items()
        )
    return True


def check(llmexp: Llmexp, name: str, printed: str) -> dict[str, Any]:
    code, text, _ = llmexp("schema", name)
    assert code == 0
    schema, answer = json.loads(text), json.loads(printed)
    assert holds(schema, answer, schema)
    assert not holds(schema, answer | {"schema": {"name": "another", "version": 1}}, schema)
    read = ANSWERS[name].validate_json(printed)
    assert json.loads(ANSWERS[name].dump_json(read)) == answer
    assert answer["schema"] == {"name": f"llmexp.{name}", "version": 3 if name == "plan" else 1}
    return dict(answer)


@pytest.mark.parametrize(
    "words",
    [("method=R+Z3", "model=7b", "hardware=a800"), ("task=micro",), ("task=serve", "engine=vllm", "model=7b")],
)
def test_a_line_of_plan_is_what_its_schema_says(llmexp: Llmexp, words: tuple[str, ...]) -> None:
    answer = check(llmexp, "plan", llmexp("plan", "--json", *words)[1])
    assert answer["plan"]["id"] in answer["folder"]


def test_a_report_is_what_its_schema_says(llmexp: Llmexp, sweeps: list[Path], make_run: Any) -> None:
    skipped = make_run("F", status="skipped", reason="no flash attention here", metrics={}, sweep__name="before")
    answer = check(llmexp, "report", llmexp("report", "--json", str(sweeps[0]))[1])
    assert answer == json.loads(llmexp("report", "--format", "json", str(sweeps[0]))[1])
    by_method = {run["subject"]["method"]: run for run in answer["runs"]}
    assert by_method["R"]["metrics"]["tokens_per_s"] == {
        "mean": 100.0,
        "std_between_repeats": 0.2,
        "std_within_run": None,
        "n": 5,
    }
    assert by_method["F"]["folder"] == str(skipped.path)
    assert (by_method["F"]["state"], by_method["F"]["metrics"]["tokens_per_s"]) == ("skipped", None)
    assert answer["metrics"]["pretrain"]["tokens_per_s"]["unit"] == "tokens/s"
    assert answer["metrics"]["pretrain"].keys() == by_method["R"]["metrics"].keys()


def test_what_is_not_a_number_is_null(llmexp: Llmexp, make_run: Any) -> None:
    made = make_run(metrics={"tokens_per_s": Metric(mean=5.0), "final_loss": Metric(mean=float("nan"))})
    (run,) = check(llmexp, "report", llmexp("report", "--json", str(made.path))[1])["runs"]
    assert run["metrics"]["tokens_per_s"]["mean"] == 5.0
    assert "NaN" not in json.dumps(run)


def test_secrets_are_hidden(llmexp: Llmexp, make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_run(status="failed", reason='"opened" https://me:sesame@host/x', metrics={})
    (run,) = check(llmexp, "report", llmexp("report", "--json", str(made.path))[1])["runs"]
    assert run["reason"] == '"opened" https://***@host/x'


def test_a_comparison_of_sets_is_what_its_schema_says_and_its_code_stays(llmexp: Llmexp, sweeps: list[Path]) -> None:
    code, out, _ = llmexp("compare", "--json", *map(str, sweeps))
    answer = check(llmexp, "compare", out)
    assert (code, answer["kind"], answer["failed"], answer["complete"]) == (1, "sets", True, True)
    assert [(row["name"], row["outcome"]) for row in answer["rows"]] == [("tiny Naive", "worse"), ("tiny R", "worse")]
    assert answer["rows"][0]["low"] < answer["rows"][0]["ratio"] < answer["rows"][0]["high"] < 1


def test_a_comparison_of_two_runs_is_what_its_schema_says(llmexp: Llmexp, make_run: Any) -> None:
    a, b = make_run("Naive", metrics=tokens(100.0)), make_run("R", metrics=tokens(50.0))
    code, out, _ = llmexp("compare", "--json", str(a.path), str(b.path))
    answer = check(llmexp, "compare", out)
    assert (code, answer["kind"], answer["same_work"], answer["speeds"]["answer"]) == (0, "runs", True, "different")
    (ratio,) = answer["ratios"]
    assert (ratio["metric"], ratio["unit"], ratio["better"], ratio["ratio"]) == (
        "tokens_per_s",
        "tokens/s",
        "higher",
        0.5,
    )
    assert {"key": "method", "a": "Naive", "b": "R"} in answer["settings"]


def test_schemas_are_listed_and_another_name_is_one_line(llmexp: Llmexp) -> None:
    assert llmexp("schema")[1].split() == ["plan", "report", "compare", "search", "findings", "tables", "advice"]
    code, _, err = llmexp("schema", "reprot")
    assert (code, err) == (
        2,
        "llmexp: unknown schema 'reprot': did you mean report? "
        "choices are plan, report, compare, search, findings, tables, advice\n",
    )


def test_findings_are_what_their_schema_says(llmexp: Llmexp) -> None:
    answer = check(llmexp, "findings", llmexp("report", "findings", "--json")[1])
    (claim,) = [claim for claim in answer["claims"] if claim["id"] == "S01"]
    in_csv = csv.DictReader(io.StringIO(llmexp("report", "findings", "--format", "csv")[1]))
    (row,) = [row for row in in_csv if row["id"] == "S01"]
    assert (claim["statement"], claim["published"]["verdict"]) == (row["statement"], row["paper"])
    assert claim["yours"]["verdict"] == "cannot tell"


CARD = (
    "model=7b",
    "hardware=rtx4090",
    "hardware.devices_per_node=1",
    "task=finetune",
    "engine=torch",
    "optimizer=adamw",
)


def test_advice_is_what_its_schema_says(llmexp: Llmexp) -> None:
    answer = check(llmexp, "advice", llmexp("advise", *CARD, "--for", "tokens=1e9", "--json", "--top", "1")[1])
    options = answer["options"]
    assert [option["rank"] for option in options] == list(range(1, len(options) + 1))
    assert len(options) > 3
    first = options[0]
    assert answer["choice"][0] == f"best by tokens_per_s: llmexp {first['command'].removeprefix('python -m llmexp ')}"
    assert (first["fits"], first["undecided"], first["changes"], first["hardware"], first["devices"]) == (
        *("yes", True, ["adapters only"]),
        *("rtx4090", 1),
    )
    # What may not fit comes last, where it would be faster.
    assert not [option for option in options if option["fits"] == "yes"][-1]["undecided"]
    assert first["low_tokens_per_s"] < first["tokens_per_s"] < first["high_tokens_per_s"]
    assert first["training"]["time_s"] == pytest.approx(answer["training_tokens"] / first["tokens_per_s"])
    assert sum(first["time_shares"].values()) == pytest.approx(1)
    assert first["settings"]["method"] in first["command"]
    assert all(option["settings"].keys() == first["settings"].keys() for option in options)


def test_the_nearest_that_does_not_fit_says_what_it_lacks_and_what_would_help(llmexp: Llmexp) -> None:
    words = ("model=7b", "hardware=a100", "hardware.devices_per_node=1", "engine=torch", "method=F+R,F+Z3+O")
    answer = check(llmexp, "advice", llmexp("advise", *words, "precision=bf16_mixed", "optimizer=adamw", "--json")[1])
    nearest = answer["nearest"][0]
    memory = nearest["memory"]
    assert nearest["lacks_bytes"] == memory["need_bytes"] - memory["capacity_bytes"] > 0
    assert nearest["reason"].endswith(f"GiB of a device, which has {memory['capacity_bytes'] / 2**30:.1f}")
    assert "Z2+O" in nearest["fits_with"]
    assert "method=F+R" in nearest["command"]


def test_a_published_table_is_what_its_schema_says(llmexp: Llmexp, make_run: Any) -> None:
    words = ("report", "paper", "table03", str(make_run("F", metrics=tokens(100.0)).path))
    answer = check(llmexp, "tables", llmexp(*words, "--json")[1])
    (table,) = answer["tables"]
    assert (answer["reference"], table["name"]) == ("paper", "table03")
    in_csv = csv.DictReader(io.StringIO(llmexp(*words, "--format", "csv")[1]))
    assert [cell.keys() for cell in table["cells"]] == [row.keys() for row in in_csv]
    assert any("model=" in command for command in table["missing"])
