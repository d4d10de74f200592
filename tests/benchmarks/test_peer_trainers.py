"""The other trainers that gpu_parts runs beside llmexp: what they read, their model, and one of them trains."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tokenizers import Tokenizer

from benchmarks.peers import torchtitan_7b

SEVEN_B = yaml.safe_load((Path(__file__).parents[2] / "conf" / "model" / "7b.yaml").read_text())


def test_torchtitan_reads_a_token_a_word_of_the_vocabulary_of_7b(tmp_path: Path) -> None:
    torchtitan_7b._write_tokenizer(tmp_path / "tokenizer.json")
    torchtitan_7b._write_texts(tmp_path / "texts" / "train.jsonl")
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = json.loads((tmp_path / "texts" / "train.jsonl").read_text().splitlines()[0])["text"]
    assert tokenizer.encode(text).ids == [int(word) for word in text.split()]
    assert tokenizer.get_vocab_size() == SEVEN_B["vocab_size"]


@pytest.mark.slow  # importing transformers' Trainer takes most of it
def test_the_trainer_has_the_shape_of_7b_and_trains_on_its_own_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from transformers import LlamaConfig, Trainer

    from benchmarks.peers import trainer_7b

    asked: list[Any] = []

    def smaller(**options: Any) -> LlamaConfig:
        asked.append(LlamaConfig(**options))
        return LlamaConfig(**options, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)

    trained: list[Trainer] = []
    run = Trainer.train
    monkeypatch.setattr(trainer_7b, "LlamaConfig", smaller)
    monkeypatch.setattr(Trainer, "train", lambda self: trained.append(self) or run(self))
    options = "--seq_len 8 --per_device_train_batch_size 2 --max_steps 2 --report_to none --use_cpu True"
    monkeypatch.setattr(sys, "argv", ["trainer_7b.py", *options.split()])
    trainer_7b.main(str(tmp_path))
    assert (trained[0].state.global_step, trained[0].args.per_device_train_batch_size) == (2, 2)
    (shape,) = asked
    assert {key: getattr(shape, key) for key in ("vocab_size", "hidden_size", "intermediate_size")} == {
        key: SEVEN_B[key] for key in ("vocab_size", "hidden_size", "intermediate_size")
    }
    assert (shape.num_hidden_layers, shape.num_attention_heads) == (SEVEN_B["num_layers"], SEVEN_B["num_heads"])
