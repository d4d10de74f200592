from __future__ import annotations

import pytest

from llmexp.launch import display as module
from llmexp.launch.display import display
from llmexp.launch.progress import FEWEST, UNHEARD_AFTER_S, Progress, Recent
from llmexp.record.samples import Sample, StepSample


@pytest.fixture
def repeat(tmp_path):
    path = tmp_path / "repeat.0"
    path.mkdir()
    return path


@pytest.fixture
def take_steps(repeat):
    """Append steps of 0.5 s and 100 positions to rank 0's samples."""

    def take(first: int, count: int) -> None:
        with (repeat / "samples.0.jsonl").open("a") as file:
            for step in range(first, first + count):
                times = {"t_start_s": step / 2, "t_end_s": (step + 1) / 2}
                sample = StepSample(
                    index=step, warmup=step < 2, positions=100, real_tokens=90, loss=2.0, memory_bytes=2**30, **times
                )
                file.write(sample.model_dump_json() + "\n")

    return take


@pytest.fixture
def progress(make_plan, repeat):
    made = Progress(make_plan("well", warmup_steps=2, steps=8, repeats=3))
    made.begin(0, repeat)
    return made


def test_before_the_first_step(progress):
    progress.update()
    assert str(progress) == "tiny Naive · repeat 1/3 · starting"


def test_warm_up_and_measured_steps_are_told_apart(progress, take_steps):
    take_steps(0, 1)
    progress.update()
    assert "step 1/10 (warm-up) · 200 tokens/s" not in str(progress)
    assert "step 1/10 (warm-up) · 400 tokens/s · 1.00 GiB" in str(progress)
    take_steps(1, 3)
    progress.update()
    assert "step 4/10 (measured)" in str(progress)


def test_time_left_covers_all_repeats(progress, take_steps):
    take_steps(0, 4)
    progress.update()
    assert progress.remaining_s == pytest.approx((3 * 10 - 4) * 0.5, abs=0.1)
    assert str(progress).endswith(" · 13 s left")


def test_without_a_known_number_of_samples_there_is_no_time_left(make_plan, repeat, take_steps, monkeypatch):
    plan = make_plan("well", warmup_steps=2, steps=8)
    monkeypatch.setattr(type(plan), "samples", 0)
    progress = Progress(plan)
    progress.begin(0, repeat)
    take_steps(0, 4)
    progress.update()
    assert "step 4 (measured) · 400 tokens/s" in str(progress)
    assert not any(word in str(progress) for word in (" left", "ending", "4/"))


def test_later_repeats_start_from_nothing(progress, take_steps, tmp_path):
    take_steps(0, 10)
    progress.update()
    progress.begin(1, tmp_path / "repeat.1")
    assert str(progress) == "tiny Naive · repeat 2/3 · starting"
    assert progress.steps_done == 10


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        (
            {"line": None, "callback": False},
            "call llmexp.hook.step(tokens=..., loss=...) after each, or describe the line that ends one: engine.opt",
        ),
        (
            {"line": "step (?P<loss>.*)", "callback": False},
            "no line matches step (?P<loss>.*); its ranks printed 3 lines, the last of rank 1: 'it 7 [/x]'",
        ),
        (
            {"line": None, "callback": True},
            "adapter=None needs a transformers Trainer, and none trained in the processes that llmexp started",
        ),
        (None, None),
    ],
)
def test_what_a_program_prints_without_a_step_is_said_after_a_while(
    make_plan, repeat, take_steps, monkeypatch, capsys, heard, said
):
    now_s = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s[0])
    progress = Progress(
        make_plan().model_copy(
            update={"engine_config": heard | {"every_step": "its log interval to 1"} if heard else {}}
        )
    )
    progress.begin(0, repeat)
    now_s[0] += 2 * UNHEARD_AFTER_S
    progress.update()
    assert str(progress) == "tiny Naive · starting", "nothing was printed: the ranks may still import"
    (repeat / "log.0.txt").write_text("loading\n\n")
    (repeat / "log.1.txt").write_text("it 6\rit 7 [/x]\nit 8")
    progress.update()
    assert str(progress) == "tiny Naive · starting"
    now_s[0] += UNHEARD_AFTER_S
    progress.update()
    assert (
        (f"tiny Naive · starting · no step reported yet: {said}" in str(progress))
        if said
        else (str(progress) == "tiny Naive · starting")
    )
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
    with display(progress) as show:
        show()  # markup of the program's is not ours
    take_steps(0, 1)
    progress.update()
    assert "step 1/3 (warm-up)" in str(progress)


def test_single_repeat_is_not_counted(make_plan):
    assert str(Progress(make_plan("well"))) == "tiny Naive · starting"


def test_plain_lines_come_now_and_then(progress, take_steps, capsys, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s[0])
    with display(progress) as show:
        take_steps(0, 1)
        show()
        assert capsys.readouterr().err.splitlines() == ["tiny Naive · repeat 1/3 · starting"]
        now_s[0] += module.PLAIN_INTERVAL_S
        show()
        show()
    assert [line.split(" · ")[2] for line in capsys.readouterr().err.splitlines()] == ["step 1/10 (warm-up)"]


def test_a_plain_line_is_not_said_twice(progress, take_steps, capsys, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s[0])
    with display(progress) as show:
        for steps in (0, 0, 1, 0):
            now_s[0] += module.PLAIN_INTERVAL_S
            take_steps(0, steps)
            show()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" · ")[2] for line in lines] == ["starting", "step 1/10 (warm-up)"]


def test_nothing_is_left_after_the_last_step(make_plan, repeat, take_steps):
    progress = Progress(make_plan("well", warmup_steps=2, steps=8, repeats=1))
    progress.begin(0, repeat)
    for first, count, left in ((0, 9, " s left"), (9, 1, "ending")):
        take_steps(first, count)
        progress.update()
        assert str(progress).endswith(left)


def test_terminal_gets_one_living_line(progress, take_steps, capsys, monkeypatch):
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with display(progress) as show:
        take_steps(0, 3)
        show()
    assert "step 3/10 (measured)" in capsys.readouterr().err


def sample(start_s: float, end_s: float) -> Sample:
    return Sample(index=0, warmup=False, t_start_s=start_s, t_end_s=end_s)


def pace(samples: list[Sample]) -> float:
    recent = Recent()
    recent.extend(samples)
    return recent.amount / recent.seconds


def test_steps_that_follow_each_other_are_judged_by_the_last_ones():
    slow = [sample(step, step + 1) for step in range(5)]
    fast = [sample(5 + step / 4, 5 + (step + 1) / 4) for step in range(FEWEST)]
    assert pace(slow) == pytest.approx(1)
    assert pace(slow + fast) == pytest.approx(4)


@pytest.mark.parametrize("latency_s", [0.1, 1, 80])
def test_requests_are_counted_by_their_ends_however_long_they_waited(latency_s: float):
    ends_s = [latency_s + index / 8 for index in range(2000)]
    assert pace([sample(end_s - latency_s, end_s) for end_s in ends_s]) == pytest.approx(8, rel=0.01)


def test_a_batch_that_ends_at_one_moment_took_its_time():
    batches = [sample(begin_s, begin_s + 2) for begin_s in (0, 2, 4) for _ in range(64)]
    assert pace(batches[:64]) == pytest.approx(32)
    assert pace(batches) == pytest.approx(32)


def test_what_is_forgotten_counts_no_more():
    recent = Recent()
    recent.extend([sample(0, 5)])
    recent.clear()
    assert not recent
    recent.extend([sample(7, 8)])
    assert recent.seconds == pytest.approx(1)
