"""Writes a model whose layers' matrices are in the 4-bit formats of GPTQ or AWQ, rounded to the nearest value.

The formats are those that AutoGPTQ and AutoAWQ store: 4-bit values, eight in a word of 32 bits, and for each group of
inputs a scale in fp16 and a zero. Both methods choose values by text, of which random weights need none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from llmexp.serving.plan.quantized import Int4

BITS, A_WORD, LARGEST = 4, 8, 15
IN_ORDER = tuple(range(A_WORD))
# The columns in a word of AWQ's, from the lowest bits.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
# GPTQ's zero, in the middle of the values; it stores one less.
MIDDLE = 8
# The smallest scale of AWQ's, in fp16 too.
_LEAST = 1e-5
Tensors = dict[str, Tensor]


def write_int4(model: PreTrainedModel, kind: Int4, group: int, folder: Path) -> None:
    """Write the tensors and the configuration of a model whose matrices are quantized in groups of so many inputs."""
    save_file(dict(_tensors(model, kind, group)), folder / "model.safetensors", {"format": "pt"})
    model.config.quantization_config = configuration_of(kind, group)
    model.config.save_pretrained(folder)


def configuration_of(kind: Int4, group: int) -> dict[str, Any]:
    """Return the words by which servers know the format."""
    shared = {"quant_method": kind, "bits": BITS, "group_size": group}
    if kind == "awq":
        return shared | {"zero_point": True, "version": "gemm"}
    return shared | {"sym": True, "desc_act": False, "checkpoint_format": "gptq"}


def gptq(weight: Tensor, group: int) -> Tensors:
    """Return a matrix, of outputs by inputs, as GPTQ stores it: values of a column in a word, zeros in the middle."""
    values, _, scales = _symmetric(_grouped(weight, group))
    inputs = weight.shape[1]
    return {
        "qweight": packed(_whole(values, inputs).T, IN_ORDER).T,
        "qzeros": packed(torch.full_like(scales, MIDDLE - 1), IN_ORDER),
        "scales": scales.half(),
        "g_idx": torch.arange(inputs, dtype=torch.int32) // group,
    }


def awq(weight: Tensor, group: int) -> Tensors:
    """Return a matrix, of outputs by inputs, as AWQ stores it: values of a row in a word, each group with its zero."""
    values, zeros, scales = _shifted(_grouped(weight, group))
    return {
        "qweight": packed(_whole(values, weight.shape[1]), AWQ_ORDER),
        "qzeros": packed(zeros, AWQ_ORDER),
        "scales": scales.half(),
    }


def rounded_to(kind: Int4, weight: Tensor, group: int) -> Tensor:
    """Return a matrix as a server that has it in this format computes with it, in the matrix's own dtype."""
    values, zeros, scales = _VALUES[kind](_grouped(weight, group))
    back = (values.clamp(0, LARGEST) - zeros[:, None]) * scales[:, None]
    return back.flatten(0, 1).T.to(weight.dtype).contiguous()


KINDS: Mapping[Int4, Callable[[Tensor, int], Tensors]] = {"gptq": gptq, "awq": awq}


def packed(values: Tensor, order: Sequence[int]) -> Tensor:
    """Return rows of values from 0 to 15 as words, the first of the order in the lowest bits."""
    eight = values.to(torch.int32).unflatten(-1, (-1, A_WORD))
    words = torch.zeros_like(eight[..., 0])
    for place, column in enumerate(order):
        words |= eight[..., column] << (BITS * place)
    return words


def _tensors(model: PreTrainedModel, kind: Int4, group: int) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor by its name; the matrix of tied embeddings once."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head.weight is embedding.weight
    for name, module in model.named_modules():
        is_quantized = isinstance(module, nn.Linear) and module is not head
        if is_quantized:
            for leaf, tensor in KINDS[kind](module.weight.detach(), group).items():
                yield f"{name}.{leaf}", tensor.contiguous()
        elif not (tied and module is head):
            for leaf, parameter in module.named_parameters(recurse=False):
                yield f"{name}.{leaf}", parameter.detach().contiguous()


def _symmetric(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return GPTQ's values, zeros and scales of groups."""
    scales = _stored(2 * groups.abs().amax(1) / LARGEST)
    return torch.round(groups / scales[:, None]) + MIDDLE, torch.full_like(scales, MIDDLE), scales


def _shifted(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return AWQ's values, zeros and scales of groups."""
    low = groups.amin(1)
    scales = _stored((groups.amax(1) - low) / LARGEST)
    zeros = torch.round(-low / scales).clamp(0, LARGEST)
    return torch.round(groups / scales[:, None]) + zeros[:, None], zeros, scales


_VALUES: Mapping[Int4, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]] = {"gptq": _symmetric, "awq": _shifted}


def _grouped(weight: Tensor, group: int) -> Tensor:
    """Return a matrix in fp32 as groups by inputs of a group by outputs."""
    return weight.T.float().unflatten(0, (-1, group))


def _whole(values: Tensor, inputs: int) -> Tensor:
    """Return groups of values as a matrix of inputs by outputs, none beyond what 4 bits hold."""
    return values.clamp(0, LARGEST).reshape(inputs, -1)


def _stored(scales: Tensor) -> Tensor:
    """Return scales as fp16 keeps them."""
    return scales.clamp(min=_LEAST).half().float()
