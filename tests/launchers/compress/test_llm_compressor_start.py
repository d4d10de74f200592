"""The program that runs in llm-compressor's environment: its schemes, and how the worker takes its endings."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_llama import MakePlan

from llmexp.launchers.compress import llm_compressor, oneshot
from llmexp.launchers.compress.llm_compressor import CompressorError
from llmexp.launchers.compress.text import SplitText
from llmexp.launchers.rank.frame import Rank

TEXT = SplitText([[1, 2, 3]], [[[4, 5, 6], [7, 8]], [[9, 10]]])


def _scheme(weights: str, activations: str | None = None, group_size: int | None = None, symmetric: bool = True) -> Any:
    return oneshot.scheme_of(
        {"weights": weights, "activations": activations, "group_size": group_size, "symmetric": symmetric}
    )


def test_integers_have_a_scale_a_group_or_a_channel() -> None:
    form = {"num_bits": 3, "type": "int", "symmetric": True, "dynamic": False}
    assert _scheme("int3", group_size=64) == {"weights": form | {"strategy": "group", "group_size": 64}}
    assert _scheme("int3") == {"weights": form | {"strategy": "channel"}}
    assert _scheme("int3", symmetric=False)["weights"]["symmetric"] is False


def test_activations_have_a_scale_a_token_or_one_from_the_calibration() -> None:
    a_token = {"num_bits": 8, "symmetric": True, "strategy": "token", "dynamic": True}
    assert _scheme("int4", "int8", 32)["input_activations"] == a_token | {"type": "int"}
    assert _scheme("fp8", "fp8")["input_activations"] == a_token | {"type": "float"}
    static = _scheme("fp8", "fp8_static")
    assert static["input_activations"]["dynamic"] is False
    assert (static["weights"]["strategy"], static["input_activations"]["strategy"]) == ("tensor", "tensor")


def test_zero_points_beside_no_activations_are_not_packed() -> None:
    job = {"symmetric": False, "activations": None}
    assert oneshot.format_of(job) == {"quantization_format": "int-quantized"}
    others = (job | {"symmetric": True}, job | {"activations": "int8"}, {"method": "wanda"})
    assert [oneshot.format_of(other) for other in others] == [{}, {}, {}]


@pytest.mark.parametrize(("weights", "activations"), [("mxfp4", "int8"), ("nvfp4", "fp8"), ("int4", "fp4")])
def test_formats_that_do_not_go_together_are_refused(weights: str, activations: str) -> None:
    with pytest.raises(ValueError, match=f"compress.activations={activations}"):
        _scheme(weights, activations)


def test_the_program_needs_nothing_of_llmexp() -> None:
    tree = ast.parse(Path(oneshot.__file__).read_text())
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    roots = {name.partition(".")[0] for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
    assert roots == {"torch", "transformers", "datasets", "compressed_tensors", "llmcompressor", "safetensors"}


def test_a_mixtrals_experts_get_the_names_of_its_checkpoints(tmp_path: Path) -> None:
    """In each file, in the index of several, and in what says which matrices have few bits; others keep theirs."""
    expert, other = "model.layers.1.block_sparse_moe.experts.3", "model.layers.1.mlp.gate_proj.weight"
    names = [f"{expert}.{part}_proj.weight_packed" for part in ("gate", "down", "up")]
    for number, name in enumerate((*names, other)):
        save_file({name: torch.full((2,), number)}, tmp_path / f"model-{number}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(names, "a file")}))
    (tmp_path / "config.json").write_text(json.dumps({"targets": [oneshot.OF_EXPERTS]}))
    oneshot.rename_experts(tmp_path)
    renamed = [f"{expert}.{part}.weight_packed" for part in ("w1", "w2", "w3")]
    for number, name in enumerate((*renamed, other)):
        assert load_file(tmp_path / f"model-{number}.safetensors")[name].tolist() == [number, number]
    assert list(json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]) == renamed
    (target,) = json.loads((tmp_path / "config.json").read_text())["targets"]
    assert all(re.match(target.removeprefix("re:"), name.removesuffix(".weight_packed")) for name in renamed)


@pytest.fixture
def ended(compress_plan: MakePlan, tmp_path: Path) -> Any:
    """Run the worker's side with a shell script in place of the interpreter; $2 is the job."""

    def run(script: str, method: str = "gptq", **keys: Any) -> dict[str, Any]:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        plan = compress_plan(
            method, model=tmp_path, engine_config={"python": str(python), "modifier": {"iters": 5}}, **keys
        )
        return llm_compressor.run(plan, Rank(0, 0, 1, tmp_path), TEXT, tmp_path / "source", tmp_path / "model")

    return run


def _answers(said: dict[str, Any], tmp_path: Path) -> str:
    (tmp_path / "said.json").write_text(json.dumps(said))
    return f"cp {tmp_path / 'said.json'} {tmp_path / 'answer.json'}"


def test_the_job_has_the_method_the_tokens_and_the_places(ended: Any, tmp_path: Path) -> None:
    assert ended(_answers({"nll_saved": 2.5}, tmp_path), weights="int3") == {"nll_saved": 2.5}
    job = json.loads((tmp_path / "job.json").read_text())
    expected = {
        "method": "gptq",
        "weights": "int3",
        "group_size": 32,
        "modifier": {"iters": 5},
        "calibration": [[1, 2, 3]],
        "held_out": [[4, 5, 6], [7, 8], [9, 10]],
        "model": str(tmp_path / "source"),
        "folder": str(tmp_path / "model"),
        "device": "cpu",
        "threads": torch.get_num_threads(),
    }
    assert {key: job[key] for key in expected} == expected


def test_its_words_are_in_the_ranks_log_without_the_ranks_variables(
    ended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    ended(f"echo told rank=$RANK offline=$HF_HUB_OFFLINE\n{_answers({}, tmp_path)}")
    assert "told rank= offline=1" in (tmp_path / "log.0.txt").read_text()


def test_its_error_is_the_runs(ended: Any, tmp_path: Path) -> None:
    with pytest.raises(CompressorError, match=r"^llm-compressor: ImportError: No module named 'llmcompressor'$"):
        ended(_answers({"error": "ImportError: No module\nnamed 'llmcompressor'"}, tmp_path) + "\nexit 1")


def test_memory_that_ran_out_there_ran_out(ended: Any, tmp_path: Path) -> None:
    with pytest.raises(MemoryError, match="CUDA out of memory"):
        ended(_answers({"error": "OutOfMemoryError: CUDA out of memory."}, tmp_path) + "\nexit 1")


def test_an_end_without_an_answer_is_told(ended: Any, tmp_path: Path) -> None:
    """An earlier start's answer is none."""
    (tmp_path / "answer.json").write_text('{"nll_saved": 2.5}')
    with pytest.raises(CompressorError, match="its process ended with exit code 3"):
        ended("exit 3")


def test_the_program_says_why_it_has_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here as in an environment that lacks llm-compressor, or has one that its model does not suit."""

    def unloadable(job: dict[str, Any]) -> None:
        raise ValueError(f"no model of {job['method']}")

    monkeypatch.setattr(oneshot, "loaded", unloadable)
    job = {"method": "awq", "device": "cpu", "seed": 0, "threads": 1, "answer": str(tmp_path / "answer.json")}
    (tmp_path / "job.json").write_text(json.dumps(job))
    with pytest.raises(ValueError, match="no model of awq"):
        oneshot.main(tmp_path / "job.json")
    assert json.loads((tmp_path / "answer.json").read_text())["error"] == "ValueError: no model of awq"


def test_the_program_is_started_by_its_path(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", llm_compressor.PROGRAM, tmp_path / "none.json"], capture_output=True, text=True
    )
    assert "FileNotFoundError" in done.stderr
