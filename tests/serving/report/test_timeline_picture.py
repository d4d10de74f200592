from __future__ import annotations

from pathlib import Path

from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.server_samples import GpuSample, ServerSample
from llmexp.serving.report.timeline import LoadSpan, draw_timeline, in_flight


def request(index: int, sent_s: float | None, end_s: float) -> RequestSample:
    return RequestSample(
        index=index,
        warmup=False,
        t_start_s=0.0,
        t_end_s=end_s,
        sent_s=sent_s,
        asked_prompt_tokens=8,
        asked_output_tokens=8,
    )


REQUESTS = [request(0, 0.5, 3.0), request(1, 1.0, 2.0), request(2, None, 1.5)]
PAGES = [
    ServerSample(at_s=at_s, page={"running": 1, "waiting": 0, "kv_used_share": 0.5}) for at_s in (0.0, 1.0, 9.0, 10.0)
]
MACHINE = [ServerSample(at_s=at_s, processes=1, resident_bytes=2**30, cpu_s=at_s) for at_s in (0.0, 10.0)]
SPANS = [LoadSpan("4/s", 0, 3), LoadSpan("max", 4, 10)]
BY_SERVER = ("running, by the server", "waiting, by the server", "KV cache, %")


def drawn(folder: Path, requests: list[RequestSample], server: list[ServerSample]) -> str:
    path = folder / "timeline.svg"
    assert draw_timeline("tiny", requests, server, SPANS, path) == [path]
    return path.read_text()


def test_requests_in_flight_are_those_that_were_sent_and_not_answered() -> None:
    assert in_flight(REQUESTS) == [(0.5, 1), (1.0, 2), (2.0, 1), (3.0, 0)]


def test_the_picture_has_what_was_told_and_the_load_points(tmp_path: Path) -> None:
    picture = drawn(tmp_path, REQUESTS, PAGES + MACHINE)
    for text in ("in flight, by the client", *BY_SERVER, "host memory, GiB", "4/s", "max", "tiny"):
        assert f"<!-- {text} -->" in picture, text
    assert "power, W" not in picture
    assert "GPU memory, GiB" not in picture


def test_gpus_have_panels_where_they_tell(tmp_path: Path) -> None:
    gpus = [GpuSample(uuid="GPU-1", memory_used_bytes=7e10, power_w=300)]
    told = [ServerSample(at_s=at_s, gpus=gpus) for at_s in (0.0, 1.0)]
    picture = drawn(tmp_path, REQUESTS, told)
    assert "<!-- GPU memory, GiB -->" in picture
    assert "<!-- power, W -->" in picture
    assert not any(text in picture for text in BY_SERVER)


def test_where_nothing_was_told_there_is_no_picture(tmp_path: Path) -> None:
    assert draw_timeline("tiny", [], [ServerSample(at_s=1, missed="status 503")], SPANS, tmp_path / "a.png") == []
    assert not list(tmp_path.iterdir())


def test_a_burst_that_begins_and_ends_at_once_is_drawn(tmp_path: Path) -> None:
    one = [request(0, 1.0, 1.0)]
    assert "<!-- in flight, by the client -->" in drawn(tmp_path, one, [])
