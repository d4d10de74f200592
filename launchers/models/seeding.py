"""Weights seeded by parameter name, the same for every engine and layout.

Names are those of transformers' Llama and of PEFT.
"""

from __future__ import annotations

import hashlib

import torch

WEIGHT_STD = 0.02


def fill(name: str, tensor: torch.Tensor, seed: int) -> None:
    """Fill one parameter from a generator seeded by its name.

    Gains are 1, biases and LoRA's B are 0, other matrices are normal with deviation WEIGHT_STD. A stack of experts'
    matrices is filled one by one under <name>.<expert>, so that a rank that holds some experts makes only those. A
    tensor without content, of which only the size is of interest, is left alone.
    """
    if tensor.untyped_storage().device.type == "meta":
        return
    if tensor.dim() == 3:
        for expert, matrix in enumerate(tensor):
            fill(f"{name}.{expert}", matrix, seed)
        return
    with torch.no_grad():
        if tensor.dim() < 2:
            tensor.fill_(0.0 if name.endswith("bias") else 1.0)
            return
        if ".lora_B." in name:  # so that an adapter does not change the model at first
            tensor.zero_()
            return
        digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
        generator = torch.Generator(tensor.device).manual_seed(int.from_bytes(digest[:6], "big"))
        values = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
        tensor.copy_(values.normal_(0.0, WEIGHT_STD, generator=generator))
