"""`transformers serve` with the routes of a profiler: POST /start_profile and /stop_profile.

    python -m llmexp.launchers.profiled_server.transformers_cli FOLDER serve MODEL …

The profiler runs in the thread that generates, because torch profiles the thread that starts it. Ranges around the
model's modules and around the steps are there only while it is on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from threading import Condition
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager
from transformers.generation.continuous_batching.scheduler import Scheduler

from llmexp.launchers.profiled_server.guarded_cli import ask_for_key
from llmexp.launchers.training.module_ranges import ranges_of
from llmexp.measure.kernels import trace_to
from llmexp.record import ranges

# The name by which a trace's file is known as this process's.
RANK = 0


class StepProfiler:
    """Profiles the steps of the thread that generates, from when one route asks for it until another ends it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._changed = folder, Condition()
        self._wanted, self._written = False, 0
        self._opened: ExitStack | None = None
        self.phase = ""

    @property
    def is_on(self) -> bool:
        """Tell whether steps are being profiled; only the thread that generates asks."""
        return self._opened is not None

    def start(self) -> None:
        """Have the thread begin with its next step."""
        with self._changed:
            self._wanted = True

    def stop(self) -> None:
        """Have the thread end, and wait until the trace is written; raises TimeoutError where it does not."""
        with self._changed:
            if not self._wanted:
                return
            self._wanted, before = False, self._written
            if not self._changed.wait_for(lambda: self._written > before, timeout=300):
                raise TimeoutError("the thread that generates did not end its profile within 300 s")

    def obey(self, model: nn.Module) -> None:
        """Begin or end, as asked; the thread that generates calls it between its steps."""
        if self._wanted and self._opened is None:
            if not self._written:
                _prepare()
            self._opened = ExitStack()
            self._opened.enter_context(trace_to(self._folder / f"rank{RANK}.{self._written}.new.json.gz"))
            self._opened.enter_context(ranges_of(model))
        elif not self._wanted and self._opened is not None:
            self._opened.close()
            self._opened = None
            with self._changed:
                self._written += 1
                self._changed.notify_all()


def _prepare() -> None:
    """Have torch load and set up what its profiler needs, which would be a part of the first step."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True), record_function("prepared"):
        torch.zeros(1)


def phase_of(scheduled: Sequence[Any]) -> str:
    """Return what a step does: a request is in prefill while not all tokens of its prompt have been computed."""
    in_prefill = [each.state.position_offset < len(each.state.initial_tokens) for each in scheduled]
    if not in_prefill:
        return ""
    return ranges.PREFILL if all(in_prefill) else ranges.BOTH if any(in_prefill) else ranges.DECODE


def follow(profiler: StepProfiler) -> None:
    """Have the profiler see every step of continuous batching in this process."""
    body = ContinuousBatchingManager._generation_loop_body

    @wraps(body)
    def followed(manager: Any, processor: Any, bootstrapping: bool) -> bool:
        profiler.obey(manager.model)
        if not profiler.is_on or not (processor.has_pending_requests() or not manager.input_queue.empty()):
            return bool(body(manager, processor, bootstrapping))
        profiler.phase = ""
        with record_function(ranges.STEP):
            goes_on = bool(body(manager, processor, bootstrapping))
            if profiler.phase:
                with record_function(ranges.PHASE_END + profiler.phase):
                    pass
        return goes_on

    ContinuousBatchingManager._generation_loop_body = followed
    for kind in (Scheduler, *Scheduler.__subclasses__()):
        if "schedule_batch" in vars(kind):
            kind.schedule_batch = _telling(kind.schedule_batch, profiler)


def _telling(schedule: Callable[..., Any], profiler: StepProfiler) -> Callable[..., Any]:
    """Have what is scheduled tell the profiler the phase of the step."""

    @wraps(schedule)
    def told(*args: Any, **options: Any) -> Any:
        found = schedule(*args, **options)
        if profiler.is_on:
            profiler.phase = phase_of(found[0] or ())
        return found

    return told


def add_routes(profiler: StepProfiler) -> None:
    """Give the server that `transformers serve` builds the two routes."""
    from transformers.cli.serving import server

    build = server.build_server

    @wraps(build)
    def with_routes(*args: Any, **options: Any) -> Any:
        app = build(*args, **options)
        # A route that is no coroutine runs in a thread, so that others are answered while a trace is written.
        app.post("/start_profile")(profiler.start)
        app.post("/stop_profile")(profiler.stop)
        return app

    server.build_server = with_routes


def main() -> None:
    """Serve as `transformers` does, with the words behind the folder of traces."""
    from transformers.cli.transformers import main as serve

    profiler = StepProfiler(Path(sys.argv.pop(1)))
    follow(profiler)
    add_routes(profiler)
    ask_for_key()
    serve()


if __name__ == "__main__":
    main()
