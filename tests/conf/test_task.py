"""Which data a task reads unless somebody says otherwise."""

from __future__ import annotations

import pytest

from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ([], "text"),
        (["task=finetune"], "instructions"),
        (["task=finetune", "data.seq_len=64"], "instructions"),
        (["task=finetune", "data=text"], "text"),
        (["data=synthetic", "task=finetune"], "synthetic"),
        (["experiment=paper_table09", "model=7b", "method=L"], "synthetic"),
        (["experiment=first_run", "method=Naive", "task=finetune"], "text"),
    ],
)
def test_finetuning_reads_instructions_unless_the_words_or_an_experiment_say_otherwise(
    words: list[str], data: str
) -> None:
    (job,) = jobs_of(run_parser().parse_intermixed_args(words))
    assert job.plan.config.data.name == data


def test_each_task_of_a_sweep_reads_its_own() -> None:
    jobs = jobs_of(run_parser().parse_intermixed_args(["task=pretrain,finetune"]))
    assert [job.plan.config.data.name for job in jobs] == ["text", "instructions"]
