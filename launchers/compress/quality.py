"""How a compressed model reads held-out documents, beside its original."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from llmexp.compress.record import DocumentSample
from llmexp.launchers.compress.text import Tokens


@torch.no_grad()
def nll_of(model: Any, parts: list[Tokens], device: torch.device) -> float:
    """Return the nats of a predicted token over all parts, as a model alone says."""
    nats = sum(-float(_chosen(_log_probabilities(model, part, device), part).sum()) for part in parts)
    return nats / sum(len(part) - 1 for part in parts)


def documents_read(
    original: Any, compressed: Any, documents: list[list[Tokens]], device: torch.device
) -> Iterator[DocumentSample]:
    """Yield what both models say of each document; times count from the first."""
    origin_s = time.perf_counter()
    for index, parts in enumerate(documents):
        begin_s = time.perf_counter() - origin_s
        sums = [_compared(original, compressed, part, device) for part in parts]
        nll_original, nll, kl, agreed = (sum(column) for column in zip(*sums, strict=True))
        yield DocumentSample(
            index=index,
            warmup=False,
            t_start_s=begin_s,
            t_end_s=time.perf_counter() - origin_s,
            at_s=time.time(),
            tokens=sum(len(part) - 1 for part in parts),
            nll_original=nll_original,
            nll=nll,
            kl=kl,
            agreed=int(agreed),
        )


@torch.no_grad()
def _compared(original: Any, compressed: Any, part: Tokens, device: torch.device) -> tuple[float, ...]:
    """Return a part's nll by each, KL(original || compressed) and the tokens of one mind, as sums over its tokens."""
    was, now = (_log_probabilities(model, part, device) for model in (original, compressed))
    kl = (was.exp() * (was - now)).sum()
    agreed = (was.argmax(-1) == now.argmax(-1)).sum()
    return (*(-float(_chosen(each, part).sum()) for each in (was, now)), float(kl), float(agreed))


def _log_probabilities(model: Any, part: Tokens, device: torch.device) -> torch.Tensor:
    """Return the fp32 log-probabilities of every next token of a part, one row a predicted token."""
    tokens = torch.tensor([part], device=device)
    logits: torch.Tensor = model(input_ids=tokens, use_cache=False).logits
    return logits[0, :-1].float().log_softmax(-1)


def _chosen(log_probabilities: torch.Tensor, part: Tokens) -> torch.Tensor:
    next_tokens = torch.tensor(part[1:], device=log_probabilities.device)
    return log_probabilities.gather(1, next_tokens[:, None])
