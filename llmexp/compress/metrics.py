"""The metrics of a run of task=compress: how well the smaller model speaks, its size, and what making it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, hypot, sqrt

from llmexp.analysis.inference import Estimate
from llmexp.analysis.metric import Metrics, Shown
from llmexp.analysis.quantity import Measurement
from llmexp.analysis.window import Repeat
from llmexp.compress.plan import CompressPlan
from llmexp.compress.record import CompressionSummary, DocumentSample
from llmexp.record.digits import GIB

MB = 1e6
CompressRepeat = Repeat[DocumentSample, CompressionSummary]
METRICS = Metrics()


@METRICS.add("", "lower", Shown("perplexity", ",.4g"))
def perplexity(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Perplexity of the held-out documents by the compressed model, as loaded from its folder."""
    return Measurement(exp(_a_token(repeat, lambda document: document.nll).value))


@METRICS.add("", "", Shown("original's", ",.4g", dispensable=3))
def original_perplexity(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Perplexity of the same documents by the original model."""
    return Measurement(exp(_a_token(repeat, lambda document: document.nll_original).value))


@METRICS.add("", "lower")
def perplexity_ratio(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Perplexity over the original's; its ends are those of the 95 % interval by documents."""
    return Measurement(log_ratio(repeat).ratio)


@METRICS.add("", "lower")
def perplexity_ratio_low(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Lower end of the 95 % interval of perplexity_ratio; none with one document."""
    return _end(log_ratio(repeat), 0)


@METRICS.add("", "lower")
def perplexity_ratio_high(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Upper end of the 95 % interval of perplexity_ratio; none with one document."""
    return _end(log_ratio(repeat), 1)


@METRICS.add("nats/token", "lower", Shown("KL, nats/token", ".3g", dispensable=2))
def kl_nats_per_token(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Divergence (Kullback-Leibler) of the compressed model's distribution from the original's, a token."""
    return Measurement(divergence(repeat).value)


@METRICS.add("nats/token", "lower")
def kl_nats_per_token_low(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Lower end of the 95 % interval of kl_nats_per_token; none with one document."""
    found = divergence(repeat)
    return Measurement(max(found.interval()[0], 0.0)) if found.freedom else None


@METRICS.add("nats/token", "lower")
def kl_nats_per_token_high(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Upper end of the 95 % interval of kl_nats_per_token; none with one document."""
    found = divergence(repeat)
    return Measurement(found.interval()[1]) if found.freedom else None


@METRICS.add("", "higher", Shown("same top-1, %", ".1f", 100, dispensable=4))
def top1_agreement(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Share of tokens at which both models name the same next token first."""
    return Measurement(_a_token(repeat, lambda document: document.agreed).value)


@METRICS.add("bits", "lower", Shown("bits a weight", ".3g", dispensable=1))
def weight_bits(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Bits of a weight of the compressed layers, scales and zero points included."""
    return Measurement(repeat.ranks[0].weight_bits)


@METRICS.add("bytes", "lower", Shown("layers, MB", ",.4g", 1 / MB))
def layers_bytes(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Bytes of the compressed layers by their bits; a file may store more."""
    return Measurement(repeat.ranks[0].layers_bytes)


@METRICS.add("bytes", "lower", Shown("file, MB", ",.4g", 1 / MB))
def file_bytes(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Bytes of the safetensors that were written."""
    return Measurement(repeat.ranks[0].file_bytes)


@METRICS.add("bytes")
def original_file_bytes(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Bytes of the original's safetensors."""
    return Measurement(repeat.ranks[0].original_file_bytes)


@METRICS.add("")
def parameters(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Parameters of the compressed model, as its shapes say."""
    return Measurement(repeat.ranks[0].parameters)


@METRICS.add("")
def sparsity(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Share of zeros in the compressed layers."""
    return Measurement(repeat.ranks[0].sparsity)


@METRICS.add("s", "lower", Shown("compression, s", ",.3g", dispensable=5))
def compress_time_s(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Seconds from the loaded model to the compressed one, calibration included."""
    return Measurement(repeat.ranks[0].compress_time_s)


@METRICS.add("bytes", "lower", Shown("its host memory, GiB", ",.2f", 1 / GIB, dispensable=6))
def compress_peak_rss_bytes(repeat: CompressRepeat, plan: CompressPlan) -> Measurement | None:
    """Largest resident host memory of the process that compressed."""
    return Measurement(repeat.ranks[0].compress_peak_rss_bytes)


def log_ratio(repeat: CompressRepeat) -> Estimate:
    """Estimate the logarithm of the compressed model's perplexity over the original's, by documents."""
    return _a_token(repeat, lambda document: document.nll - document.nll_original)


def divergence(repeat: CompressRepeat) -> Estimate:
    """Estimate the divergence of a token, in nats, by documents."""
    return _a_token(repeat, lambda document: document.kl)


def _a_token(repeat: CompressRepeat, value: Callable[[DocumentSample], float]) -> Estimate:
    documents = [document for (document,) in repeat.measured]
    return ratio_of_sums([value(document) for document in documents], [document.tokens for document in documents])


def ratio_of_sums(values: Sequence[float], sizes: Sequence[float]) -> Estimate:
    """Estimate the sum of values over the sum of sizes, with documents as the independent units.

    The error is the ratio estimator's of survey sampling (Cochran, Sampling Techniques, 2.11), by what each document
    is off the common ratio. With one document the error is 0 and has no degree of freedom.
    """
    count, size = len(values), sum(sizes)
    ratio = sum(values) / size
    off = hypot(*(value - ratio * own for value, own in zip(values, sizes, strict=True)))
    error = off * sqrt(count / (count - 1)) / size if count > 1 else 0.0
    return Estimate(ratio, error, count - 1)


def _end(found: Estimate, side: int) -> Measurement | None:
    return Measurement(found.ratio_interval()[side]) if found.freedom else None
