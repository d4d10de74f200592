"""The summary of the process that put a load on a server: what the server took, and what the client itself costs."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from llmexp.record.samples import RankSummary, Record


class ClientFloor(Record):
    """What the client measures at a load point against a server that answers at once: its own share of every figure."""

    point: int = Field(description="the number of the load point")
    requests: int
    requests_per_s: float
    ttft_p50_s: float = Field(description="from when requests were due")
    ttft_p99_s: float
    end_to_end_p50_s: float


class ServingSummary(RankSummary):
    """The summary of a load client, rank.0.json."""

    server_start_s: float | None = Field(
        None, description="from the server's start to its readiness; None for a server that ran already"
    )
    floors: list[ClientFloor] = Field(default_factory=list, description="one for each load point")
    no_floors: str = Field("", description="why the client's own share is not known")

    model_config = ConfigDict(extra="forbid")
