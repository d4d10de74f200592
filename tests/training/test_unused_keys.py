from __future__ import annotations

import pytest
from planning import make_plan

from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.errors import ConfigError
from llmexp.launchers.deepspeed.options import deepspeed_options
from llmexp.training.unused_keys import unused_keys


@pytest.mark.parametrize(
    ("words", "key", "reason"),
    [
        ("adapter.rank=8", "adapter.rank", "only L and QL have such matrices"),
        ("task=finetune method=P adapter.targets=[q_proj]", "adapter.targets", "only L and QL have such matrices"),
        ("task=finetune method=L adapter.virtual_tokens=3", "adapter.virtual_tokens", "only P has such embeddings"),
        ("task=finetune adapter.save=true", "adapter.save", "only L, QL and P have an adapter to save"),
        ("data=instructions data.split=test", "data.split", "only a dataset of data.path has splits"),
        ("precision.scale_window=9", "precision.scale_window", "only losses with parameters in fp16 are scaled"),
        ("optimizer.total_steps=9", "optimizer.total_steps", "the learning rate is constant"),
        ("optimizer.final_lr_share=0.5", "optimizer.final_lr_share", "optimizer.schedule=constant does not fall"),
        (
            "optimizer.schedule=linear optimizer.decay_steps=3",
            "optimizer.decay_steps",
            "only optimizer.schedule=wsd has such steps",
        ),
        ("measure.min_steps=50", "measure.min_steps", "no repeat ends early without measure.stop_at_interval_share"),
        (
            "measure.profile=false measure.profile_steps=5",
            "measure.profile_steps",
            "measure.profile=false traces no step",
        ),
        (
            "engine.options.gradient_cliping=1",
            "engine.options.gradient_cliping",
            "engine=deepspeed has no such option: did you mean gradient_clipping?",
        ),
        (
            "engine=megatron engine.options.transfomer={num_layers:1}",
            "engine.options.transfomer",
            "engine=megatron has no such option: did you mean transformer? choices are ddp, optimizer, transformer",
        ),
        (
            "engine=torch parallelism.dp=1 engine.options.fully_shard={a:1}",
            "engine.options.fully_shard",
            "engine=torch has no options in this run",
        ),
    ],
)
def test_what_changes_nothing_is_named_with_the_reason(
    words: str, key: str, reason: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert unused_keys(make_plan(*words.split())) == {key: reason}


@pytest.mark.parametrize(
    "words",
    [
        "task=finetune method=QL+F adapter.rank=8 adapter.alpha=3 adapter.save=true",
        "task=finetune method=P adapter.virtual_tokens=3",
        "data.pack=false",
        "data=instructions data.path=org/set data.split=test",
        "measure=adaptive measure.min_steps=50 measure.profile_steps=5",
        "engine.options.gradient_clipping=1 engine.options.zero_optimization={contiguous_gradients:false} method=Z2",
        "engine=torch engine.options.distributed_data_parallel={bucket_cap_mb:5}",
        "engine=megatron engine.options.ddp={bucket_size:1000}",
        "engine=script engine.options.command=train.py",
    ],
)
def test_what_counts_is_not(words: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    assert unused_keys(make_plan(*words.split())) == {}


def test_a_key_that_counts_in_one_run_of_a_sweep_is_welcome_and_one_that_counts_in_none_is_refused() -> None:
    def jobs(*words: str) -> int:
        return len(jobs_of(run_parser().parse_intermixed_args(["task=finetune", "model=tiny", "hardware=cpu", *words])))

    assert jobs("method=Naive,L", "adapter.rank=4,8") == 4
    with pytest.raises(
        ConfigError, match=r"^adapter\.rank does nothing here: only L and QL have such matrices; leave it out$"
    ):
        jobs("method=Naive,F", "adapter.rank=4,8")


def test_deepspeeds_own_names_are_read_from_its_sources() -> None:
    expected = {
        "gradient_clipping",
        "zero_optimization",
        "bf16",
        "wall_clock_breakdown",
        "prescale_gradients",
        "zero_force_ds_cpu_optimizer",
    }
    assert expected <= deepspeed_options()
    assert "gradient_cliping" not in deepspeed_options()
