from __future__ import annotations

from llmexp.launch import follow
from llmexp.launch.follow import SampleFollower, Silence
from llmexp.record.samples import StepSample


def line(step: int) -> str:
    return (
        StepSample(
            index=step, warmup=False, t_start_s=0, t_end_s=1, positions=1, real_tokens=1, loss=1
        ).model_dump_json()
        + "\n"
    )


def test_each_sample_is_read_once_and_only_when_complete(tmp_path):
    path = tmp_path / "samples.0.jsonl"
    follower = SampleFollower(path, StepSample)
    assert follower.read() == []
    path.write_text(line(0) + line(1)[:10])
    assert [sample.index for sample in follower.read()] == [0]
    assert follower.read() == []
    with path.open("a") as file:
        file.write(line(1)[10:] + line(2))
    assert [sample.index for sample in follower.read()] == [1, 2]


def test_silence_lasts_until_any_rank_writes(tmp_path, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(follow.time, "monotonic", lambda: now_s[0])
    silence = Silence(tmp_path)
    now_s[0] = 7
    assert silence.seconds() == 0, "the first look finds whatever is there"
    now_s[0] = 12
    assert silence.seconds() == 5
    (tmp_path / "log.1.txt").write_text("alive")
    assert silence.seconds() == 0
    (tmp_path / "rank.0.json").write_text("{}")
    now_s[0] = 14
    assert silence.seconds() == 2
