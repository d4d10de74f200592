"""transformers' Trainer on Llama 2 of 7B in bf16 and random tokens; the options of TrainingArguments follow."""

from __future__ import annotations

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Sequences of so many tokens, drawn evenly."""

    def __init__(self, positions: int, vocabulary: int) -> None:
        self._positions, self._vocabulary = positions, vocabulary

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        seeded = torch.Generator().manual_seed(index)
        drawn = torch.randint(self._vocabulary, (self._positions,), generator=seeded)
        return {"input_ids": drawn, "labels": drawn}


def main(folder: str) -> None:
    """Train as the command line says; checkpoints and the like go into the folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seq_len", type=int, default=4096)
    own, words = parser.parse_known_args()
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses([*words, f"--output_dir={folder}"])
    shape = LlamaConfig(max_position_embeddings=own.seq_len)  # its other defaults are Llama 2's of 7B
    with torch.device(arguments.device):
        model = LlamaForCausalLM._from_config(shape, dtype=torch.bfloat16, attn_implementation="sdpa")
    Trainer(model=model, args=arguments, train_dataset=Tokens(own.seq_len, shape.vocab_size)).train()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(scratch)
