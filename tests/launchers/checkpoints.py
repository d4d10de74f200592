"""Checkpoints as transformers itself writes them, and what its own models say of them."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from llmexp.launchers.data import loader
from llmexp.training.plan.training_plan import TrainingPlan

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def write(folder: Path, config: Any = None, shard_size: str = "5GB", dtype: torch.dtype = torch.float32) -> Path:
    """A small model of random weights, not those that llmexp would seed."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config or LlamaConfig(**SIZES), dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return folder


def first_outputs(plan: TrainingPlan, model: Any) -> tuple[float, torch.Tensor]:
    """The mean loss of the first step's sequences of all replicas, and the logits of the first sequence.

    A model in one process computes them.
    """
    sequences = loader.load(plan.config.data, model.config.vocab_size, 2 * plan.batch.global_, plan.config.seed)
    with torch.no_grad():
        outputs = [
            model(input_ids=batch.input_ids, labels=batch.labels)
            for replica in range(plan.dims.dp)
            for batch in next(loader.batches(sequences, replica, plan.dims.dp, plan.batch, CPU))
        ]
    return sum(output.loss.item() for output in outputs) / len(outputs), outputs[0].logits


def write_with_tokenizer(folder: Path) -> Path:
    """A checkpoint with a small tokenizer of real text, whose generation_config.json would end and vary outputs."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<s>", "</s>"], initial_alphabet=letters)
    library = Path(sysconfig.get_path("stdlib"))
    tokenizer.train_from_iterator([(library / name).read_text() for name in ("ast.py", "bdb.py", "cmd.py")], trainer)
    post = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.post_processor = post
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    write(folder, LlamaConfig(**SIZES | {"vocab_size": 600, "head_dim": 32}, max_position_embeddings=256))
    ends = {"eos_token_id": list(range(300)), "repetition_penalty": 1.3, "do_sample": True, "temperature": 0.7}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    return folder
