"""The profiler in the process of `transformers serve` follows the thread that generates, and tells steps apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import torch

from llmexp.launchers.profiled_server.transformers_cli import StepProfiler, phase_of
from llmexp.record.ranges import BOTH, DECODE, PREFILL
from llmexp.traces.events import read_trace


@dataclass
class State:
    position_offset: int
    initial_tokens: list[int] = field(default_factory=lambda: [1, 2, 3])


@dataclass
class Scheduled:
    state: State


def scheduled(*past: int) -> list[Scheduled]:
    return [Scheduled(State(each)) for each in past]


def test_a_request_is_in_prefill_until_all_tokens_of_its_prompt_are_computed() -> None:
    assert phase_of(scheduled(0, 2)) == PREFILL
    assert phase_of(scheduled(0, 3)) == BOTH
    assert phase_of(scheduled(3, 7)) == DECODE
    assert phase_of([]) == ""


def test_the_thread_that_generates_is_profiled_from_start_to_stop(tmp_path: Path) -> None:
    profiler, model, ended = StepProfiler(tmp_path), torch.nn.Linear(4, 4), Event()
    profiler.stop()  # nothing was started, and nothing is waited for

    def generate() -> None:
        while not ended.is_set():
            profiler.obey(model)
            if profiler.is_on:
                model(torch.zeros(2, 4))
            else:
                torch.sin(torch.zeros(1))

    thread = Thread(target=generate)
    thread.start()
    try:
        for window in range(2):
            profiler.start()
            while not profiler.is_on:
                pass
            profiler.stop()
            trace = read_trace(tmp_path / f"rank0.{window}.new.json.gz")
            assert not {"aten::sin", "prepared"} & {*trace.names}
    finally:
        ended.set()
        thread.join()
    assert len(list(tmp_path.iterdir())) == 2
