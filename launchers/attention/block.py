"""Attention of some queries to some keys (a block).

A block gives its output with the log-sum-exp that is needed to add blocks up, and its part of the gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]
Triple = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class AttentionBlock(ABC):
    """A block: query [batch, heads, seq, head_dim], key and value [batch, kv_heads, seq, head_dim].

    Set `causal` where queries and keys are of the same positions.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    causal: bool
    scale: float

    @abstractmethod
    def attend(self) -> Pair:
        """Return the output as if these were all keys, and the scores' log-sum-exp, fp32 [batch, heads, seq]."""

    @abstractmethod
    def gradients(self, grad: Tensor, output: Tensor, lse: Tensor) -> Triple:
        """Return what this block adds to the gradients of its queries, keys and values.

        `grad`, `output` and `lse` belong to the attention to all keys.
        """


class FlashBlock(AttentionBlock):
    """A block computed by torch's flash kernels, which raise RuntimeError where they cannot take the inputs."""

    def attend(self) -> Pair:
        """Return output and log-sum-exp, as the kernel gives them."""
        inputs = (self.query, self.key, self.value)
        if self.query.is_cuda:
            output, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
                *inputs, is_causal=self.causal, scale=self.scale
            )
        else:
            output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                *inputs, is_causal=self.causal, scale=self.scale
            )
        return output, lse

    def gradients(self, grad: Tensor, output: Tensor, lse: Tensor) -> Triple:
        """Return the gradients, as the kernel computes them from the log-sum-exp."""
        inputs = (grad, self.query, self.key, self.value, output, lse)
        if not self.query.is_cuda:
            found: Triple = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                *inputs, 0.0, self.causal, scale=self.scale
            )
            return found
        inputs = (*inputs[:-1], lse.contiguous())  # the kernel does not accept another stride
        # no cumulative lengths: sequences are not packed
        lengths = (None, None, self.query.shape[2], self.key.shape[2])
        no_dropout = torch.empty(2, dtype=torch.uint64, device=grad.device)
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(
            *inputs, *lengths, 0.0, self.causal, no_dropout, no_dropout, scale=self.scale
        )


class UnfusedBlock(AttentionBlock):
    """A block computed in three steps: scores, softmax in fp32, weighted values."""

    def attend(self) -> Pair:
        """Return output and log-sum-exp, from scores that are held in memory."""
        scores = self._scores()
        weights = torch.softmax(scores, dim=-1)
        return weights.to(self.value.dtype) @ self._expanded(self.value), scores.amax(-1) - weights.amax(-1).log()

    def gradients(self, grad: Tensor, output: Tensor, lse: Tensor) -> Triple:
        """Return the gradients; that of the softmax is FlashAttention's (arXiv 2205.14135, appendix B.2)."""
        weights = (self._scores() - lse[..., None]).exp()
        of_weights = (grad @ self._expanded(self.value).transpose(-1, -2)).float()
        of_scores = weights * (of_weights - (grad * output).float().sum(-1, keepdim=True)) * self.scale
        of_scores, weights = of_scores.to(grad.dtype), weights.to(grad.dtype)
        of_key, of_value = of_scores.transpose(-1, -2) @ self.query, weights.transpose(-1, -2) @ grad
        return of_scores @ self._expanded(self.key), self._summed(of_key), self._summed(of_value)

    def _scores(self) -> Tensor:
        scores = (self.query @ self._expanded(self.key).transpose(-1, -2)).float() * self.scale
        if self.causal:
            scores.masked_fill_(
                torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1), -torch.inf
            )
        return scores

    @property
    def _queries_per_key(self) -> int:
        return self.query.shape[1] // self.key.shape[1]

    def _expanded(self, keys: Tensor) -> Tensor:
        return keys.repeat_interleave(self._queries_per_key, dim=1)

    def _summed(self, gradient: Tensor) -> Tensor:
        return gradient.unflatten(1, (-1, self._queries_per_key)).sum(2)
