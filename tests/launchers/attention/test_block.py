from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn import functional

from llmexp.launchers.attention.block import AttentionBlock, FlashBlock, UnfusedBlock

CPU = torch.device("cpu")
# Of outputs and gradients near 1, against one softmax over all keys (measured: 5e-7; in bf16 3e-2).
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 6e-2}


def two_halves(block: type[AttentionBlock], dtype: torch.dtype, device: torch.device) -> None:
    """Queries of a sequence's second half see the first half and, causally, their own half.

    The two blocks, added up, are held against torch's attention.
    """
    generator = torch.Generator().manual_seed(0)
    query, grad = (torch.randn(2, 4, 32, 16, generator=generator).to(device, dtype) for _ in range(2))
    key, value = (torch.randn(2, 2, 64, 16, generator=generator).to(device, dtype) for _ in range(2))
    whole = [part.float().requires_grad_() for part in (query, key, value)]
    visible = torch.ones(32, 64, dtype=torch.bool, device=device).tril(32)
    expected = functional.scaled_dot_product_attention(*whole, attn_mask=visible, enable_gqa=True)
    expected.backward(grad.float())

    made = partial(block, scale=16**-0.5)
    before = made(query, key[:, :, :32], value[:, :, :32], causal=False)
    own = made(query, key[:, :, 32:], value[:, :, 32:], causal=True)
    (early, lse_early), (late, lse_late) = before.attend(), own.attend()
    lse = torch.logaddexp(lse_early, lse_late)
    output = (early * (lse_early - lse).exp()[..., None] + late * (lse_late - lse).exp()[..., None]).to(dtype)
    parts = [part.gradients(grad, output, lse) for part in (before, own)]
    of_query, of_key, of_value = (
        parts[0][0] + parts[1][0],
        *(torch.cat(pair, 2) for pair in list(zip(*parts, strict=True))[1:]),
    )
    for found, wanted in zip(
        (output, of_query, of_key, of_value), (expected, *(part.grad for part in whole)), strict=True
    ):
        torch.testing.assert_close(found.float(), wanted, atol=TOLERANCES[dtype], rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("block", [FlashBlock, UnfusedBlock])
def test_blocks_add_up_to_attention_and_to_its_gradients(block: type[AttentionBlock], dtype: torch.dtype) -> None:
    two_halves(block, dtype, CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("block", [FlashBlock, UnfusedBlock])
def test_they_do_on_cuda(block: type[AttentionBlock]) -> None:
    two_halves(block, torch.bfloat16, torch.device("cuda"))
