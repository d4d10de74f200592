"""Text of several domains: those whose held-out loss is furthest above a reference get more of each batch.

The dynamic batch loading of Sheared LLaMA (Xia et al., arXiv 2310.06694, algorithm 1).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from llmexp.compress.config import CompressRunConfig, Prune
from llmexp.compress.record import DomainShare
from llmexp.launchers.compress.quality import nll_of
from llmexp.launchers.compress.recovery import SEQUENCES, endless
from llmexp.launchers.compress.text import SplitText, split_text

HELD_OUT_DOCUMENTS = 8


def domains_of(config: CompressRunConfig, vocabulary: int) -> dict[str, SplitText]:
    """Read each domain's documents; raise ConfigError where there are too few."""
    recipe, text = config.compress, config.text
    files = recipe.recovery_domains if isinstance(recipe, Prune) else {}
    held_out = min(HELD_OUT_DOCUMENTS, text.held_out_documents)
    return {
        name: split_text(
            text.model_copy(update={"files": files[name], "held_out_documents": held_out}),
            config.seed,
            vocabulary,
            key=f"compress.recovery_domains.{name}",
        )
        for name in files
    }


def updated(
    shares: Mapping[str, float], nlls: Mapping[str, float], references: Mapping[str, float]
) -> dict[str, float]:
    """Return shares times exp(nats above the reference, at least 0), which add up to 1 again."""
    weights = {name: share * math.exp(max(nlls[name] - references[name], 0.0)) for name, share in shares.items()}
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


class Mixture:
    """Batches of several domains, and what their shares and losses were."""

    def __init__(self, original: Any, texts: Mapping[str, SplitText], recipe: Prune) -> None:
        self._texts, self._every = texts, recipe.recovery_shares_every
        self._references = self._nlls(original) | recipe.recovery_references
        self._shares = dict.fromkeys(texts, 1 / len(texts))
        self.drawn: Counter[str] = Counter(dict.fromkeys(texts, 0))
        self.history: list[DomainShare] = []

    def batches(self, model: Any, seed: int) -> Iterator[torch.Tensor]:
        """Yield batches for a model that trains on them; shares begin equal and follow the model's losses."""
        draw = random.Random(seed)
        read = {name: endless(text.calibration, seed, model.device, 1) for name, text in self._texts.items()}
        step = 0
        while True:
            if step % self._every == 0:
                self.note(model, step, changes=step > 0)
            chosen = draw.choices(list(self._shares), weights=list(self._shares.values()), k=SEQUENCES)
            parts = [next(read[name]) for name in chosen]
            for name, part in zip(chosen, parts, strict=True):
                self.drawn[name] += part.numel()
            yield torch.cat(parts)
            step += 1

    def note(self, model: Any, step: int, *, changes: bool = False) -> None:
        """Write down where each domain stands before a step, after the shares have changed where they do."""
        nlls = self._nlls(model)
        if changes:
            self._shares = updated(self._shares, nlls, self._references)
        self.history += [
            DomainShare(
                step=step,
                domain=name,
                share=self._shares[name],
                nll=nlls[name],
                reference_nll=self._references[name],
                tokens=self.drawn[name],
            )
            for name in self._texts
        ]

    def _nlls(self, model: Any) -> dict[str, float]:
        return {name: nll_of(model, text.held_out_parts, model.device) for name, text in self._texts.items()}
