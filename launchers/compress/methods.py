"""Makes the compressed model, by llm-compressor or in this process, and writes it as a plain folder."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, __version__

from llmexp.compress.config import Prune, Quantize, Sparsify
from llmexp.compress.plan import CompressPlan
from llmexp.compress.record import DomainShare
from llmexp.launchers.compress import llm_compressor
from llmexp.launchers.compress.domains import Mixture
from llmexp.launchers.compress.half_quadratic import quantize
from llmexp.launchers.compress.layer_dropping import drop_layers
from llmexp.launchers.compress.loading import batches, matrices_of, original, source_of
from llmexp.launchers.compress.magnitude import zero_smallest
from llmexp.launchers.compress.pruning import prune
from llmexp.launchers.compress.quality import nll_of
from llmexp.launchers.compress.recovery import SEQUENCES, endless, recover
from llmexp.launchers.compress.reloading import copy_tokenizer
from llmexp.launchers.compress.text import SplitText
from llmexp.launchers.rank.frame import Rank
from llmexp.machine.processes import peak_rss_bytes


@dataclass(frozen=True)
class Made:
    """A compressed model's folder, what making it took, and what it said of the held-out text before it was saved."""

    folder: Path
    time_s: float
    peak_rss_bytes: int
    nll: float
    what_ran: dict[str, Any]
    domain_shares: list[DomainShare] = field(default_factory=list)


@dataclass(frozen=True)
class _Compressed:
    """A compressed model, its tensors as they are stored where these are others, and how it was made."""

    model: PreTrainedModel
    stored: dict[str, torch.Tensor] | None = None
    ran: dict[str, Any] = field(default_factory=dict)
    shares: list[DomainShare] = field(default_factory=list)


def make(plan: CompressPlan, rank: Rank, text: SplitText, device: torch.device) -> Made:
    """Compress the plan's model into the repeat's folder `model`, in place of one that an earlier start left."""
    folder, source = rank.folder / "model", source_of(plan.config.model)
    shutil.rmtree(folder, ignore_errors=True)
    if plan.config.compress.method in plan.config.needs_llm_compressor:
        told = llm_compressor.run(plan, rank, text, source, folder)
        ran = {"compressor": "llm-compressor", "dtype": told["dtype"], "versions": told["versions"]}
        ran |= told["tuned"]
        made = Made(folder, told["compress_time_s"], told["compress_peak_rss_bytes"], told["nll_saved"], ran)
    else:
        made = _made_here(plan, text, device, folder)
    copy_tokenizer(source, folder)
    return made


def _made_here(plan: CompressPlan, text: SplitText, device: torch.device, folder: Path) -> Made:
    model = original(plan.config.model, device)
    begin_s = time.perf_counter()
    done = _compressed(model, plan, text)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    time_s, peak_bytes = time.perf_counter() - begin_s, peak_rss_bytes()
    nll = nll_of(done.model, text.held_out_parts, device)
    done.model.save_pretrained(folder, state_dict=done.stored)
    dtype = str(done.model.dtype).removeprefix("torch.")
    versions = {"torch": torch.__version__, "transformers": __version__}
    ran = {"compressor": "llmexp", "dtype": dtype, "versions": versions} | done.ran
    return Made(folder, time_s, peak_bytes, nll, ran, done.shares)


def _compressed(model: PreTrainedModel, plan: CompressPlan, text: SplitText) -> _Compressed:
    compress = plan.config.compress
    if isinstance(compress, Quantize):
        return _Compressed(model, stored=quantize(model, compress))
    if isinstance(compress, Sparsify):
        zero_smallest(matrices_of(model).values(), compress)
        return _Compressed(model)
    assert isinstance(compress, Prune)
    mixture = Mixture(model, text.domains, compress) if text.domains else None
    read, ran = batches(text.calibration, SEQUENCES, model.device), {}
    if compress.method == "layers":
        ran = {"dropped_layers": drop_layers(model, compress.share, read)}
    else:
        prune(model, compress.method, compress.share, read)
    return _recovered(model, plan, text, mixture, ran)


def _recovered(
    model: PreTrainedModel, plan: CompressPlan, text: SplitText, mixture: Mixture | None, ran: dict[str, Any]
) -> _Compressed:
    """Train on domains where there are any, else on the calibration text."""
    compress, seed = plan.config.compress, plan.config.seed
    assert isinstance(compress, Prune)
    if not mixture:
        return _Compressed(recover(model, compress, endless(text.calibration, seed, model.device)), ran=ran)
    model = recover(model, compress, mixture.batches(model, seed))
    mixture.note(model, compress.recovery_steps)
    return _Compressed(model, ran=ran | {"domain_tokens": dict(mixture.drawn)}, shares=mixture.history)
