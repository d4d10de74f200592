"""Causal attention and its gradients in double precision, of heads chosen at random, beside what a kernel computed.

Errors are those of a kernel that rounds scores, weights and their gradients to the dtype. An error of a score is the
relative error of its weight, so that it counts as often as the largest score is large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llmexp.launchers.micro.checks import differs, some, tolerance, weights_of

# A score is a product, which is scaled.
ROUNDINGS_OF_SCORE = 2
# Of the weights or their gradients, the sum that these are divided by, and the result.
ROUNDINGS_OF_RESULT, ROUNDINGS_OF_GRADIENT = 4, 8


@dataclass(frozen=True)
class _Head:
    """The heads of queries that share keys and values: queries are [heads, rows, head_dim], keys [seq_len, head_dim].

    `rows` are the places of the queries in the sequence.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    rows: Tensor

    @property
    def scores(self) -> Tensor:
        """The scores of each query with each key, -inf where the key comes later."""
        later = torch.arange(len(self.key)) > self.rows[:, None]
        scores: Tensor = self.query @ self.key.T * self.scale
        return scores.masked_fill(later.to(scores.device), -torch.inf)

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        return float(self.query.shape[-1] ** -0.5)

    def allowed(self, dtype: str, roundings: int) -> float:
        """Return the relative error that a result of these heads may have."""
        scores = self.scores
        largest = float(scores[scores.isfinite()].abs().max())
        of_scores = tolerance(dtype, ROUNDINGS_OF_SCORE, terms=self.query.shape[-1])
        return largest * of_scores + tolerance(dtype, roundings, terms=len(self.key))


def wrong_result(parts: Sequence[Tensor], found: Tensor, rows: Tensor, dtype: str) -> str:
    """Say what is wrong with these rows of the result of query, key and value; "" where nothing is."""
    for batch, heads, head in _heads(parts, rows):
        wanted = weights_of(head.scores) @ head.value
        if problem := differs(found[batch, heads][:, rows], wanted, head.allowed(dtype, ROUNDINGS_OF_RESULT)):
            return problem
    return ""


def wrong_gradients(parts: Sequence[Tensor], found: Sequence[Tensor], rows: Tensor, given: Tensor, dtype: str) -> str:
    """Say what is wrong with the gradients of query, key and value; "" where nothing is.

    The gradient of the result is `given`, [batch, heads, rows, head_dim], in these rows, and nothing in all others.
    """
    for batch, heads, head in _heads(parts, rows):
        group = heads.start // (heads.stop - heads.start)
        ours = (found[0][batch, heads], found[1][batch, group], found[2][batch, group])
        allowed = head.allowed(dtype, ROUNDINGS_OF_GRADIENT)
        wanted = _gradients(head, given[batch, heads].double())
        for name, gradient, (values, sizes) in zip(("query", "key", "value"), ours, wanted, strict=True):
            if problem := differs(gradient, values, allowed, sizes):
                return f"gradient of the {name}: {problem}"
    return ""


def _heads(parts: Sequence[Tensor], rows: Tensor) -> Iterator[tuple[int, slice, _Head]]:
    """Yield heads of keys chosen at random with all queries on them: the batch, the queries' heads, and the values."""
    query, key, value = (part.detach() for part in parts)
    batches, kv_heads = key.shape[:2]
    shared = query.shape[1] // kv_heads
    for batch, of_keys in (divmod(number, kv_heads) for number in some(batches * kv_heads).tolist()):
        heads = slice(of_keys * shared, (of_keys + 1) * shared)
        head = _Head(
            query[batch, heads][:, rows].double(), key[batch, of_keys].double(), value[batch, of_keys].double(), rows
        )
        yield batch, heads, head


def _gradients(head: _Head, given: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the gradients of query, key and value, each with the root of the sum of its squared terms, row by row.

    Terms nearly cancel: a weight's gradient less the mean is small where both are large, and each is a sum itself.
    """
    weights = weights_of(head.scores)
    of_weights = given @ head.value.T
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True)) * head.scale
    size = (given.square() @ head.value.square().T).sqrt()
    terms = (weights * (size + (weights * size).sum(-1, keepdim=True)) * head.scale).square()
    of_query = torch.zeros(*given.shape[:1], len(head.key), given.shape[-1]).to(given)
    sizes = torch.zeros(of_query.shape[:2]).to(given)
    of_query[:, head.rows] = of_scores @ head.key
    sizes[:, head.rows] = (terms @ head.key.square().sum(-1)).sqrt()
    yield of_query, sizes
    yield (of_scores.mT @ head.query).sum(0), (terms.mT @ head.query.square().sum(-1, keepdim=True)).sum((0, 2)).sqrt()
    squares = weights.square().mT @ given.square().sum(-1, keepdim=True)
    yield (weights.mT @ given).sum(0), squares.sum((0, 2)).sqrt()
