"""The task compress."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.analysis.contention import Machine, disturbances, sm_clocks
from llmexp.analysis.quantity import Measurement
from llmexp.compress.config import CompressRunConfig
from llmexp.compress.made import made_model
from llmexp.compress.metrics import METRICS, CompressRepeat
from llmexp.compress.plan import CompressPlan
from llmexp.compress.planning import plan_compression
from llmexp.compress.record import CompressionSummary, DocumentSample
from llmexp.compress.report.section import CompressSection
from llmexp.record.digits import rounded
from llmexp.record.result import Metric, Stability
from llmexp.schema import MadeModel
from llmexp.tasks.base import Task

# Documents that calibration has seen in part are read better than others.
MOST_OVERLAP = 0.01


class Compress(Task[CompressRunConfig, CompressPlan]):
    """A trained model is made smaller, and reads held-out documents beside the original."""

    name = "compress"
    config_type = CompressRunConfig
    plan_type = CompressPlan
    sample_type = DocumentSample
    summary_type = CompressionSummary
    metrics = METRICS
    section_type = CompressSection
    headlines = ("perplexity", "perplexity_ratio", "file_bytes")
    brief = ("recipe", "documents")
    level = "documents"

    def plan(self, config: CompressRunConfig) -> CompressPlan:
        """Check what the model's shape lets the method do."""
        return plan_compression(config)

    def describe(self, plan: CompressPlan) -> dict[str, str]:
        """Return what is done to which weights, and by how much text."""
        text = plan.config.text
        calibrates = f"{text.calibration_sequences} sequences of {text.seq_len} tokens calibrate"
        return {
            "recipe": plan.config.compress.words,
            "documents": f"{text.held_out_documents} of up to {text.document_tokens} tokens judge; {calibrates}",
            "library": f"llm-compressor of {python}" if (python := plan.engine_config["python"]) else "",
        }

    def made_model(self, plan: CompressPlan) -> MadeModel:
        """Return the compressed model, which can be served, trained or compressed further."""
        return made_model(plan)

    def rates(self, plan: CompressPlan, repeats: Sequence[CompressRepeat]) -> list[Measurement]:
        """Return no rate: quality is compared, not speed."""
        return []

    def judge(
        self, plan: CompressPlan, repeats: Sequence[CompressRepeat], machines: Sequence[Machine]
    ) -> Stability | None:
        """Say what disturbed the machine, and so the time of compression; None where nothing did."""
        reasons = [reason for machine in machines for reason in disturbances(machine)]
        clocks = [clock for machine in machines for clock in sm_clocks(machine)]
        return Stability(verdict="unstable", reasons=reasons, sm_clocks=clocks) if reasons else None

    def remark(self, repeats: Sequence[CompressRepeat]) -> str:
        """Say that calibration has seen a part of the documents."""
        overlap = repeats[0].ranks[0].overlap
        if overlap <= MOST_OVERLAP:
            return ""
        return f"{100 * overlap:.1f} % of the held-out windows of 16 tokens stand in the calibration text too"

    def outcome(self, plan: CompressPlan, metrics: dict[str, Metric | None]) -> str:
        """Return the perplexities, and the bytes of the file."""
        found = {name: metrics.get(name) for name in ("perplexity", "original_perplexity", "file_bytes")}
        after, before, size = (metric.mean if metric else None for metric in found.values())
        if after is None or before is None or size is None:
            return ""
        return f"perplexity {rounded(after)} (original {rounded(before)}), {rounded(size / 1e6)} MB"


COMPRESS = Compress()
