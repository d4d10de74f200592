from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.record.reading import OddFileError
from llmexp.serving.record.server_samples import GpuSample, ServerSample, read_server_samples, server_samples_path

SAMPLES = [
    ServerSample(at_s=1.5, page={"running": 3, "kv_used_share": 0.25}, page_took_s=0.004),
    ServerSample(at_s=1.0, processes=2, resident_bytes=2**30, cpu_s=4.5, gpus=[GpuSample(uuid="GPU-1", power_w=300)]),
    ServerSample(at_s=2.0, missed="no whole page within 2 s", page_took_s=2.0),
]


def write(folder: Path, *lines: str) -> Path:
    path = server_samples_path(folder)
    path.write_text("".join(lines))
    return path


def lines() -> list[str]:
    return [sample.model_dump_json(exclude_defaults=True) + "\n" for sample in SAMPLES]


def test_samples_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    path = write(tmp_path, *lines())
    assert path.name == "server.0.jsonl"
    assert read_server_samples(path) == [SAMPLES[1], SAMPLES[0], SAMPLES[2]]


@pytest.mark.parametrize("kept_bytes", range(1, 40, 7))
def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path, kept_bytes: int) -> None:
    path = write(tmp_path, *lines()[:2], lines()[2][:kept_bytes])
    assert read_server_samples(path) == [SAMPLES[1], SAMPLES[0]]


def test_no_file_is_no_sample_and_another_file_is_an_error(tmp_path: Path) -> None:
    assert read_server_samples(server_samples_path(tmp_path)) == []
    assert read_server_samples(write(tmp_path)) == []
    with pytest.raises(OddFileError, match="line 1 of 3"):
        read_server_samples(write(tmp_path, "{}\n", *lines()[:2]))
