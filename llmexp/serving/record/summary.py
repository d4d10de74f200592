"""The summary of the process that put a load on a server: what the server took, and what the client itself costs."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from llmexp.record.samples import RankSummary, Record
from llmexp.serving.record.quality import QualitySummary


class ClientOverhead(Record):
    """What the client measures at a load point against a server that answers at once: its own share of every figure."""

    point: int = Field(description="the number of the load point")
    requests: int
    requests_per_s: float
    ttft_p50_s: float = Field(description="from when requests were due")
    ttft_p99_s: float
    end_to_end_p50_s: float


class ReportedBytes(Record):
    """What a server held on all of its devices together; None where nobody tells."""

    weights_bytes: int | None = None
    weights_from: str = Field("", description="who says so")
    kv_cache_bytes: int | None = None
    kv_cache_tokens: int | None = Field(None, description="for which the KV cache has room")
    kv_cache_from: str = Field("", description="who says for how many tokens there is room")

    @property
    def sources(self) -> dict[str, str]:
        """Who says what, as far as anything is known."""
        found = {"weights_bytes_from": self.weights_from, "kv_cache_from": self.kv_cache_from}
        return {name: words for name, words in found.items() if words}


class ServingSummary(RankSummary):
    """The summary of a load client, rank.0.json."""

    server_start_s: float | None = Field(
        None, description="from the server's start to its readiness; None for a server that ran already"
    )
    held: ReportedBytes = ReportedBytes()
    floors: list[ClientOverhead] = Field(default_factory=list, description="one for each load point")
    no_floors: str = Field("", description="why the client's own share is not known")
    quality: QualitySummary | None = Field(None, description="of the answers to serve.quality; None where not asked")

    model_config = ConfigDict(extra="forbid")
