"""What a run of task=compress writes: a line of samples.0.jsonl for each held-out document, and a summary."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from llmexp.record.samples import RankSummary, Record, Sample


class DocumentSample(Sample):
    """A held-out document as the original and the compressed model read it; sums over its predicted tokens."""

    tokens: int = Field(description="predicted tokens")
    nll_original: float = Field(description="nats, by the original")
    nll: float = Field(description="nats, by the compressed model as it was loaded from its folder")
    kl: float = Field(description="nats, of the compressed model's distribution from the original's")
    agreed: int = Field(description="tokens at which both name the same next token first")

    model_config = ConfigDict(extra="forbid")

    @property
    def amount(self) -> float:
        """The predicted tokens."""
        return float(self.tokens)


class DomainShare(Record):
    """Where a domain of recovery's text stands before a step, and at the end."""

    step: int = Field(description="0 before the first")
    domain: str
    share: float = Field(description="of the batches from this step")
    nll: float = Field(description="nats a token of its held-out documents")
    reference_nll: float = Field(description="nats a token that it is compared with")
    tokens: int = Field(description="drawn until then")


class CompressionSummary(RankSummary):
    """The summary of a run: what compression took, and what it left."""

    compress_time_s: float = Field(description="from the loaded model to the compressed one, calibration included")
    compress_peak_rss_bytes: int = Field(description="of the process that compressed")
    nll_saved: float = Field(
        description="nats a token of the held-out documents by the model in memory, before it was saved"
    )
    parameters: int = Field(description="of the compressed model, as its shapes say")
    original_parameters: int
    compressed_parameters: int = Field(description="of the layers that were compressed")
    weight_bits: float = Field(description="of a weight of these layers, scales and zero points included")
    layers_bytes: int = Field(description="of these layers by their bits; a file may store more")
    file_bytes: int = Field(description="of all safetensors of the folder")
    original_file_bytes: int
    sparsity: float = Field(description="share of zeros in these layers")
    calibration_tokens: int
    overlap: float = Field(
        description="share of held-out windows of 16 tokens that stand in what calibrates or trains too"
    )
    domain_shares: list[DomainShare] = Field([], description="of recovery, a row a domain each time shares change")
