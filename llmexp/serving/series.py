"""What a served run's samples are besides metrics: latencies of each request, and what the server told over time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.server_samples import ServerSample, read_server_samples, server_samples_path

LATENCY_COLUMNS = {
    "ttft_s": ("s", "from when the request was due to its first chunk with output"),
    "e2e_s": ("s", "from when the request was due to the last byte of its whole answer"),
    "output_tokens": ("tokens", "of the answer, by the server's count, else by their ids"),
}


def latency_columns(sample: RequestSample) -> dict[str, Any]:
    """Return the columns of LATENCY_COLUMNS; those of an answer that is not whole are None."""
    times_s, whole = sample.chunk_times_s, not sample.problem
    return {
        "output_tokens": sample.output_tokens,
        "ttft_s": times_s[0] - sample.scheduled_s if times_s else None,
        "e2e_s": sample.end_s - sample.scheduled_s if whole else None,
    }


def server_series(repeat: Path) -> Iterator[tuple[float, str, float]]:
    """Yield what a server and its GPUs told: when, in seconds since the rank's origin, its name and the value.

    Raises OSError, and OddFileError where the file holds something else.
    """
    for sample in read_server_samples(server_samples_path(repeat)):
        yield from ((sample.at_s, f"server/{name}", value) for name, value in _told(sample))


def _told(sample: ServerSample) -> Iterator[tuple[str, float]]:
    yield from (sample.page or {}).items()
    if sample.resident_bytes is not None:
        yield "resident_bytes", sample.resident_bytes
    for number, gpu in enumerate(sample.gpus):
        told = gpu.model_dump(exclude={"uuid"}, exclude_none=True)
        yield from ((f"gpu_{number}_{name}", value) for name, value in told.items())
