"""The process of task=compress: it makes a model smaller, loads it again, and reads held-out documents with both."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedModel

from llmexp.compress.config import CompressRunConfig, Quantize
from llmexp.compress.plan import CompressPlan
from llmexp.compress.record import CompressionSummary, DocumentSample
from llmexp.launchers.compress.bits import bits_of, parameters_of, sparsity_of
from llmexp.launchers.compress.domains import domains_of
from llmexp.launchers.compress.loading import matrices_of, original, source_of
from llmexp.launchers.compress.methods import Made, make
from llmexp.launchers.compress.quality import documents_read
from llmexp.launchers.compress.reloading import check_parity, reloaded, safetensors_bytes
from llmexp.launchers.compress.text import SplitText, split_text
from llmexp.launchers.rank.frame import Rank, device_of, main
from llmexp.launchers.rank.versions import rank_environment
from llmexp.measure.memory import Peaks


def work(plan: CompressPlan, rank: Rank) -> CompressionSummary:
    """Compress, load and compare, a line of samples for each held-out document.

    Raises ReloadError where the loaded model is not the saved one.
    """
    torch.manual_seed(plan.config.seed)
    device = device_of(plan.config.hardware, rank.local_index)
    peaks = Peaks(device)
    text = _text(plan.config)
    made = make(plan, rank, text, device)
    begin_s = time.perf_counter()
    before = original(plan.config.model, device)
    after = reloaded(made.folder, device, trusts_code=plan.config.model.trust_remote_code)
    nll = _read(before, after, text, rank)
    window_s = time.perf_counter() - begin_s
    check_parity(made.nll, nll, after.dtype)
    return CompressionSummary(
        rank=rank.index,
        window_wall_s=window_s,
        what_ran={"device": str(device), "backend": None, **made.what_ran, **_loaded_as(after)},
        environment=rank_environment(device, rank.folder),
        **_made(made, text),
        **_sizes(plan, made, before, after),
        **peaks.summary(),
    )


def _text(config: CompressRunConfig) -> SplitText:
    model = config.model
    sizes = AutoConfig.from_pretrained(source_of(model), trust_remote_code=model.trust_remote_code)
    vocabulary = sizes.get_text_config().vocab_size
    text = split_text(config.text, config.seed, vocabulary)
    return replace(text, domains=domains_of(config, vocabulary))


def _read(before: PreTrainedModel, after: PreTrainedModel, text: SplitText, rank: Rank) -> float:
    """Write a line for each document as soon as it is read; return the nats a token of the compressed model."""
    samples: list[DocumentSample] = []
    with rank.samples_path.open("a") as file:
        for sample in documents_read(before, after, text.held_out, before.device):
            file.write(sample.model_dump_json() + "\n")
            file.flush()
            samples.append(sample)
    return sum(sample.nll for sample in samples) / sum(sample.tokens for sample in samples)


def _made(made: Made, text: SplitText) -> dict[str, Any]:
    return {
        "compress_time_s": made.time_s,
        "compress_peak_rss_bytes": made.peak_rss_bytes,
        "nll_saved": made.nll,
        "domain_shares": made.domain_shares,
        "calibration_tokens": text.calibration_tokens,
        "overlap": text.overlap,
    }


def _sizes(plan: CompressPlan, made: Made, before: PreTrainedModel, after: PreTrainedModel) -> dict[str, Any]:
    """Return the counts of both models; the loaded one has been run, so that its packed weights are whole."""
    recipe = plan.config.compress
    experts_alone = isinstance(recipe, Quantize) and recipe.layers == "experts"
    matrices = list(matrices_of(after, experts_alone=experts_alone).values())
    weights = sum(matrix.numel() for matrix in matrices)
    bits = bits_of(recipe, matrices)
    return {
        "parameters": parameters_of(after),
        "original_parameters": parameters_of(before),
        "compressed_parameters": weights,
        "weight_bits": bits / weights,
        "layers_bytes": -(-bits // 8),
        "file_bytes": safetensors_bytes(made.folder),
        "original_file_bytes": safetensors_bytes(source_of(plan.config.model)),
        "sparsity": sparsity_of(matrices),
    }


def _loaded_as(model: PreTrainedModel) -> dict[str, str]:
    """Say by which class and in which format the compressed model was loaded."""
    said = getattr(model.config, "quantization_config", None)
    form = getattr(said, "quantization_config", None)
    return {"loaded_class": type(model).__name__, "format": str(getattr(form, "format", None) or "dense")}


if __name__ == "__main__":
    main(work, lambda: CompressPlan)
