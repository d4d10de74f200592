"""Has one process compute what a server answered, and judges the answers.

The process is a child, because it imports torch, and begins when the server has ended.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from llmexp.dtypes import HALF, SINGLE, format_of, of_parameters
from llmexp.errors import BuildError, ConfigError
from llmexp.launchers.serving.weights.model_folder import FolderRequest, ensure_model_folder
from llmexp.record.reading import read_json
from llmexp.record.samples import Record
from llmexp.record.writing import write_atomically
from llmexp.schema import Dtype
from llmexp.serving.analysis.quality import judge_answers
from llmexp.serving.plan.quality import expected_changes
from llmexp.serving.plan.quantized import INT4, Int4, group_size
from llmexp.serving.plan.served_model import CheckpointModel, served_model
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.record.quality import AnswerRecord, ComparedToken, QualityRecord, QualitySummary, quality_path

REFERENCE = "llmexp.launchers.serving.quality.reference"
# A run without progress is ended: what it has measured by then shall be kept.
NEARLY = 0.9


class ReferenceTask(Record):
    """What the child process is asked for, on its standard input."""

    folder: Path
    dtype: Dtype = Field(description="that the server computes in")
    device: Literal["cpu", "cuda"]
    int4: Int4 | None = Field(None, description="the format in which the server's folder has the same weights")
    group: int = Field(0, description="of inputs that share a scale of it")
    output_tokens: int
    answers: list[AnswerRecord]


class ReferenceFound(Record):
    """What the child process answers, on its standard output."""

    exact_dtype: str
    tokens: list[ComparedToken]
    answers: list[AnswerRecord] = Field(description="those of the task, with the tokens that texts stand for")


def judged_answers(plan: ServingPlan, repeat: Path, answers: Sequence[AnswerRecord]) -> QualitySummary:
    """Compare answers with one process's, keep the record in the repeat's folder, and return the verdict."""
    record = _compared(plan, list(answers))
    write_atomically(quality_path(repeat), record.model_dump_json(exclude_defaults=True) + "\n")
    found = judge_answers(record, expected_changes(plan.config))
    print(f"the server's answers: {found.words}", flush=True)
    return found


def _compared(plan: ServingPlan, answers: list[AnswerRecord]) -> QualityRecord:
    whole = [answer for answer in answers if not answer.problem]
    if not whole:
        return QualityRecord(answers=answers)
    try:
        task = _task(plan, whole)
        found = _found(task, NEARLY * plan.config.measure.no_progress_timeout_s)
    except (BuildError, ConfigError, OSError) as error:
        return QualityRecord(answers=answers, problem=str(error))
    told = [*found.answers, *(answer for answer in answers if answer.problem)]
    return QualityRecord(answers=told, tokens=found.tokens, dtype=task.dtype, exact_dtype=found.exact_dtype)


def _task(plan: ServingPlan, answers: list[AnswerRecord]) -> ReferenceTask:
    """Return what the child computes with: the folder's own weights, which may lie in another format than served."""
    config, model = plan.config, served_model(plan.config.model)
    quality = config.serve.quality
    assert quality
    own: dict[str, Any] = {"output_tokens": quality.output_tokens, "answers": answers, "device": config.hardware.device}
    if isinstance(model, CheckpointModel):
        return ReferenceTask(folder=model.folder, dtype=plan.dtype or _dtype_of(model.folder), **own)
    assert plan.dtype
    folder = ensure_model_folder(FolderRequest(model=config.model, dtype=plan.dtype, seed=config.seed))
    if plan.server.weights in INT4:
        own |= {"int4": plan.server.weights, "group": group_size(config.model)}
    return ReferenceTask(folder=folder, dtype=plan.dtype, **own)


def _dtype_of(folder: Path) -> Dtype:
    """Return the dtype that servers take by themselves: that of the checkpoint's configuration, but never fp32."""
    config = read_json(folder / "config.json")
    said = str(config.get("dtype") or config.get("torch_dtype"))
    named = next((name for name in of_parameters() if format_of(name).torch == said), HALF)
    return HALF if named == SINGLE else named


def _found(task: ReferenceTask, within_s: float) -> ReferenceFound:
    """Run the child; raises BuildError with its last line, or where it takes too long."""
    given, command = TypeAdapter(ReferenceTask).dump_json(task), [sys.executable, "-m", REFERENCE]
    try:
        done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=within_s)
    except subprocess.TimeoutExpired:
        raise BuildError(
            f"the process that answers are compared with took more than {within_s:g} s (measure.no_progress_timeout_s)"
        ) from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"it ended with exit code {done.returncode}"
        raise BuildError(f"the process that answers are compared with failed: {why}")
    return ReferenceFound.model_validate_json(done.stdout)
