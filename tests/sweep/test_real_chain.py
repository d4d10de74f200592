"""A model is trained, fine-tuned and served by one command, with real ranks and a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.inputs.checkpoint import Checkpoint
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import RunResult

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.ranks]

QUICK = "engine:torch,measure:smoke,measure.profile:false,data.seq_len:256"
TRAINED = f"{{task:pretrain,model:tiny,task.save_model:true,sweep.run_name:base,{QUICK}}}"
TUNED = f"{{task:finetune,model:'@base',method:L,task.save_model:true,sweep.run_name:tuned,{QUICK}}}"
LOAD = "serve.rate:[max],serve.requests:4,serve.warmup_requests:1,serve.prompt.tokens:8,serve.output.tokens:8"
SERVED = f"{{task:serve,model:'@tuned',engine:transformers,{LOAD}}}"
SHARED = ("hardware=cpu", "tracking=none", "parallelism.dp=1")


def words(*cells: str) -> tuple[str, ...]:
    return (f"hydra.sweeper.cells=[{','.join(cells)}]", *SHARED)


def of(name: str) -> tuple[RunFolder, RunResult]:
    (folder,) = (run for run in find_runs(Path("outputs")) if run.path.name.startswith(f"{name}_"))
    result = folder.result()
    assert result
    return folder, result


def test_training_fine_tuning_and_serving_are_one_command(llmexp, here: Path):
    code, out, err = llmexp(*words(SERVED, TUNED, TRAINED))
    assert code == 0, out + err
    for name, maker in (("base", "tiny"), ("tuned", "base")):
        result = of(name)[1]
        assert (result.status, result.reason) == ("success", "")
        assert result.started_from == Checkpoint.read(of(maker)[0].repeat(0) / "model").digest
    (point,) = of("tuned")[1].points
    assert point.metrics["output_tokens_per_s"].mean > 0

    code, out, err = llmexp(*words(SERVED, TUNED, TRAINED))
    assert (code, out.count("success already")) == (0, 3), out + err


def test_what_a_failed_run_would_have_made_is_skipped_with_its_reason(llmexp, here: Path):
    code, out, err = llmexp(*words(TRAINED.replace(QUICK, f"{QUICK},measure.timeout_s:0.1"), TUNED, SERVED))
    assert code == 1, out + err
    assert of("tiny")[1].status == "timeout"
    assert of("base")[1].reason.startswith(f"model=@base: {of('tiny')[0].path} ended timeout: ")
    assert of("tuned")[1].reason.startswith(f"model=@tuned: {of('base')[0].path} ended skipped: model=@base: ")
