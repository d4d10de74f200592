from __future__ import annotations

from pathlib import Path

from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.server_samples import GpuSample, ServerSample, server_samples_path
from llmexp.serving.series import LATENCY_COLUMNS, latency_columns, server_series


def test_what_a_server_told_stands_under_its_name_at_its_time(tmp_path: Path) -> None:
    gpu = GpuSample(uuid="GPU-1", power_w=300.0)
    told = [
        ServerSample(at_s=1.2, page={"running": 3, "kv_used_share": 0.5}),
        ServerSample(at_s=2.0, processes=1, resident_bytes=7, gpus=[gpu]),
    ]
    server_samples_path(tmp_path).write_text("".join(sample.model_dump_json() + "\n" for sample in told))
    assert list(server_series(tmp_path)) == [
        (1.2, "server/running", 3),
        (1.2, "server/kv_used_share", 0.5),
        (2.0, "server/resident_bytes", 7),
        (2.0, "server/gpu_0_power_w", 300.0),
    ]


def test_a_repeat_without_a_watch_has_no_series(tmp_path: Path) -> None:
    assert list(server_series(tmp_path)) == []


def test_latencies_count_from_when_a_request_was_due() -> None:
    known = {"index": 0, "warmup": False, "t_start_s": 1.0, "t_end_s": 3.0, "sent_s": 1.5, "chunk_us": [500_000]}
    whole = RequestSample(**known, asked_prompt_tokens=2, asked_output_tokens=1, usage_output_tokens=1)
    assert latency_columns(whole) == {"output_tokens": 1, "ttft_s": 1.0, "e2e_s": 2.0}
    assert latency_columns(whole.model_copy(update={"problem": "cut off"}))["e2e_s"] is None
    assert latency_columns(whole).keys() == LATENCY_COLUMNS.keys()
