"""The repeats of interleaved runs are read from the folders, and runs that shared their host are compared by them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import fmean, stdev

import pytest

from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric, Stability, Turn, to_json
from llmexp.record.samples import TrainingSummary
from llmexp.report.rounds import rounds_of
from llmexp.report.row import read_row
from llmexp.report.table import build_report

CONTENDED = Stability(
    verdict="unstable",
    reasons=[
        "contention: other processes took 0.80 of 2 cores while the ranks compute with 2 (highest load average 3.0)"
    ],
)
STEPS, POSITIONS, ROUND_S = 20, 350, 100
Interleaved = Callable[..., RunFolder]


def iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")


@pytest.fixture
def interleaved(make_run, write_samples) -> Interleaved:
    """Make a run with these tokens/s of its repeats, at this place of each round, and the cores that others took."""

    def make(
        method: str, rates: Sequence[float], place: int, taken: float = 0.8, order: str = "interleaved"
    ) -> RunFolder:
        metric = Metric(mean=fmean(rates), std_between_repeats=stdev(rates), n=len(rates))
        run = make_run(method, metrics={"tokens_per_s": metric}, stability=CONTENDED, parallelism__dp=1)
        turns, lines = [], []
        for number, rate in enumerate(rates):
            begin_s, step_s = 1e9 + ROUND_S * number + 10 * place, POSITIONS / rate
            write_samples(run.repeat(number), 0, [(step_s, 1.0)] * STEPS, from_s=begin_s, warmup=())
            summary = TrainingSummary(
                rank=0, window_wall_s=STEPS * step_s, time_to_first_step_s=1.0,
                parameters=1, trainable_parameters=1, peak_rss_bytes=1, state_bytes={}, what_ran={},
            )  # fmt: skip
            (run.repeat(number) / "rank.0.json").write_text(to_json(summary))
            lines.append({"at_s": begin_s + 1, "interval_s": 1.0, "cpu_other_cores": taken})
            turns.append(Turn(repeat=number, began_at=iso(begin_s), ended_at=iso(begin_s + 9)))
        run.system_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = run.result()
        result.order, result.turns, result.repeats = order, turns, len(rates)
        result.environment = {"cpu": {"usable_cores": 2}, "host": "here"}
        run.write(run.result_path, result)
        return run

    return make


# Noise of the host that meets both runs of a round, and little of their own.
LEVELS = (1.0, 0.7, 1.3, 0.9)
NAIVE, SLOW = (
    [900 * level for level in LEVELS],
    [450 * level * own for level, own in zip(LEVELS, (1, 1.01, 0.99, 1), strict=True)],
)


def said(*folders: RunFolder) -> str:
    return "\n".join(build_report(folders).sections[0].answers)


def test_each_repeat_has_its_rate_and_the_cores_that_others_took(interleaved):
    rounds = rounds_of(read_row(interleaved("F", NAIVE, 1)))
    assert [one.rate for one in rounds] == pytest.approx(NAIVE)
    assert {(one.cores, one.taken_cores, one.driver) for one in rounds} == {(2, 0.8, ("here", 0))}
    assert rounds[1].began_at == iso(1e9 + ROUND_S + 10)


def test_runs_on_a_shared_host_are_judged_by_their_rounds(interleaved):
    answer = said(interleaved("Naive", NAIVE, 0), interleaved("F", SLOW, 1))
    assert "Naive trains tiny at 878 tokens/s, round by round 2.00 times F: it is the fastest" in answer
    assert "Significantly slower: F." in answer
    assert "where they met both runs alike, repeats of the same round are compared" in answer
    assert "Round by round, as others shared the host, slower than Naive: F." in answer


def test_they_are_not_judged_where_others_took_more_from_one_of_them(interleaved):
    answer = said(interleaved("Naive", NAIVE, 0), interleaved("F", SLOW, 1, taken=1.6))
    assert "Lower, but not judged, because their measurement or that of the first is unstable: F." in answer
    assert "times F" not in answer
    assert "No method is compared with Naive" in answer


@pytest.mark.parametrize("name", ["repeat.2/samples.0.jsonl", "repeat.2/rank.0.json", "system.jsonl"])
@pytest.mark.parametrize("text", [None, "{}\n", "no JSON\n"])
def test_nor_where_samples_are_gone_or_damaged(interleaved, name, text):
    run = interleaved("Naive", NAIVE, 0)
    (run.path / name).unlink() if text is None else (run.path / name).write_text(text)
    assert not rounds_of(read_row(run))


def test_runs_that_took_no_turns_have_no_rounds(interleaved):
    assert not rounds_of(read_row(interleaved("R", NAIVE, 2, order="run_by_run")))
