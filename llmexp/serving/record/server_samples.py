"""What a server and its machine tell under a load: lines of server.<rank>.jsonl in a repeat's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from llmexp.record.samples import Record, read_samples

ServerMetric = Literal[
    "running",
    "waiting",
    "kv_used_share",
    "preemptions",
    "prefix_queried_tokens",
    "prefix_hit_tokens",
    "transferred_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "accepted_share",
    "draft_steps",
    "prompt_steps",
    "draft_width",
    "tokens_per_draft_step",
    "generated_tokens",
    "prompt_tokens",
]
"""The names that llmexp has for what servers tell: requests, tokens, and shares from 0 to 1.

running, waiting and the shares are of the moment; all others count since the server's start. prefix_queried_tokens
are those of prompts that were looked up in the cache of prefixes; transferred_tokens are those whose keys and values
came from another server.

Of speculative decoding: drafted_tokens are those that were proposed, accepted_tokens those of them that became output.
draft_steps are passes that verify a request's drafts; prompt_steps are those among them that read its prompt instead.
accepted_share, draft_width (the tokens that a pass computes: the proposed ones and one) and tokens_per_draft_step are
of a server's last batches.
"""
SHARES: frozenset[ServerMetric] = frozenset({"kv_used_share", "accepted_share", "draft_width", "tokens_per_draft_step"})


class GpuSample(Record):
    """One GPU at one moment; None where its driver does not tell."""

    uuid: str
    memory_used_bytes: float | None = Field(None, description="of the whole device, whoever holds it")
    power_w: float | None = None
    sm_clock_megahertz: float | None = None
    memory_clock_megahertz: float | None = None
    temperature_celsius: float | None = None


class ServerSample(Record):
    """One look at a server's page of metrics, or at its processes and GPUs: each has lines of its own.

    A page that hangs thus holds up nothing else.
    """

    at_s: float = Field(description="when all of it was read: seconds since the rank's origin, as RequestSample has it")
    page: dict[ServerMetric, float] | None = Field(None, description="what the page said; None where it was not read")
    page_took_s: float | None = Field(None, description="from the question to the page's last byte, or to the miss")
    missed: str = Field("", description="why the page could not be read this time")
    processes: int | None = Field(None, description="of the server, that were alive")
    resident_bytes: int | None = Field(
        None, description="of these processes, added up; memory that several share counts in each"
    )
    cpu_s: float | None = Field(None, description="that these, and those seen before, computed since they began")
    gpus: list[GpuSample] = Field(default_factory=list)


def server_samples_path(repeat: Path, rank: int = 0) -> Path:
    """Return the path of the file that a rank's watch writes."""
    return repeat / f"server.{rank}.jsonl"


def read_server_samples(path: Path) -> list[ServerSample]:
    """Read such a file in the order of its times, without a last line that was cut off; empty where there is none.

    Raises OSError, and OddFileError where the file holds something else.
    """
    try:
        found = read_samples(path, ServerSample)
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda sample: sample.at_s)
