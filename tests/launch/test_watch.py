from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from patience import until

from llmexp.launch.display import display
from llmexp.launch.ending import Ending
from llmexp.launch.follow import Silence
from llmexp.launch.progress import Progress
from llmexp.launch.spawn import Agent, agent_log
from llmexp.launch.watch import Limits, watch
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus

SLEEP_S = 4
SLEEPER = [sys.executable, "-c", f"import time; time.sleep({SLEEP_S})"]


@pytest.fixture
def start(folder: RunFolder):
    return lambda argv: Agent(
        [word.replace("{folder}", str(folder.repeat(0))) for word in argv], os.environ, agent_log(folder.repeat(0))
    )


@pytest.mark.slow
def test_waiting_takes_less_than_a_hundredth_of_a_core(make_plan, folder, start):
    plan = make_plan()
    progress = Progress(plan)
    progress.begin(0, folder.repeat(0))
    with start(SLEEPER) as agent, display(progress) as show:
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        assert watch(agent, folder.repeat(0), Limits(plan.config.measure, began_s), show) is None
        waited_s, used_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    assert waited_s > SLEEP_S / 2
    assert used_s < 0.01 * waited_s


def test_a_limit_of_hours_is_said_in_hours_too(make_plan, folder):
    measure = make_plan(timeout_s=7200.0, no_progress_timeout_s=1800.0).config.measure
    hours_ago, silence = Limits(measure, time.monotonic() - 8000), Silence(folder.repeat(0))
    assert hours_ago.reached(silence) == Ending(
        RunStatus.TIMEOUT, "the run took longer than measure.timeout_s=7200 (2 h)"
    )


def test_end_is_noticed_at_once_not_at_the_next_tick(start):
    with start(["true"]) as agent:
        assert agent.ends_within(60)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", -signal.SIGKILL), ("kill -TERM $$", -signal.SIGTERM)],
)
def test_exit_code_tells_signals(start, script, code):
    with start(["sh", "-c", script]) as agent:
        assert agent.ends_within(60)
        assert agent.stop() == code


def test_leaving_the_block_ends_the_command(start, processes):
    with start(["sleep", "1000"]):
        assert processes()
    assert processes() == []


def test_only_processes_that_handle_it_are_asked_for_stacks(start, folder):
    handler = (
        "import faulthandler, signal, sys, time; faulthandler.register(signal.SIGUSR1); "
        "print('ready', file=sys.stderr); time.sleep(1000)"
    )
    log = folder.repeat(0) / "log.agent.txt"
    with start(["sh", "-c", f'"{sys.executable}" -c "{handler}"; true']) as agent:
        until(lambda: "ready" in log.read_text())
        agent.ask_for_stacks()
        until(lambda: "most recent call first" in log.read_text())
        assert not agent.ends_within(0), "the shell, which does not handle SIGUSR1, must live"
