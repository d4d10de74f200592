"""The watch beside a server: both kinds of samples on the client's clock, whatever page and process do."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import paged_server
import psutil
import pytest
from paged_server import PATIENCE_S, PagedServer
from patience import until
from test_server_process import LONG, plan

from llmexp.launchers.serving.engines import vllm
from llmexp.launchers.serving.server.process import Server
from llmexp.launchers.serving.watch.server_watch import ServerWatch
from llmexp.launchers.serving.watch.watching import PageLook, Watched, WatchRounds, rounds
from llmexp.serving.record.server_samples import ServerSample, read_server_samples, server_samples_path


@pytest.fixture
def server() -> Iterator[PagedServer]:
    with PagedServer(paged_server.VLLM).running() as running:
        yield running


def watched(folder: Path, server: PagedServer, **more: Any) -> Watched:
    given = {
        "origin_s": time.perf_counter(),
        "pid": os.getppid(),
        "interval_s": 0.02,
        "page_interval_s": 0.02,
        "page_within_s": PATIENCE_S,
    } | more
    return Watched(
        server_samples_path(folder), address=server.address, metrics="/metrics", names=vllm.METRIC_NAMES, **given
    )


def machine_samples(path: Path) -> list[ServerSample]:
    return [sample for sample in read_server_samples(path) if sample.processes is not None]


def test_both_kinds_of_samples_are_written_on_the_clients_clock(tmp_path: Path, server: PagedServer) -> None:
    order = watched(tmp_path, server)
    with ServerWatch(order):
        begun_s = time.perf_counter() - order.origin_s
        server.wait_asked(4)
        until(lambda: len(machine_samples(order.file)) >= 2)
        server.page = paged_server.VLLM.replace(" 32.0", " 1.0")
        server.wait_asked(2)
        ending_s = time.perf_counter() - order.origin_s
    ended_s = time.perf_counter() - order.origin_s
    found = read_server_samples(order.file)
    pages, machine = [one for one in found if one.page], machine_samples(order.file)
    assert [pages[0].page["running"], pages[-1].page["running"]] == [32, 1]  # type: ignore[index]
    assert all(0 < one.at_s < ended_s for one in found)
    assert any(begun_s < one.at_s < ending_s for one in pages)
    assert min(pages[-1].at_s, machine[-1].at_s) > ending_s, "both have a last sample at the end"
    assert all(one.resident_bytes and one.cpu_s and one.processes for one in machine)
    assert not any(one.missed for one in found)


def test_a_page_that_hangs_holds_up_nothing_but_itself(tmp_path: Path, server: PagedServer) -> None:
    server.hangs_after_bytes = 50
    order = watched(tmp_path, server)
    with ServerWatch(order):
        server.wait_asked(1)
        before = len(machine_samples(order.file))
        until(lambda: len(machine_samples(order.file)) >= before + 3)
        assert not any(one.page for one in read_server_samples(order.file))
        server.hangs_after_bytes = None
        server.let_go.set()
    assert any(one.page for one in read_server_samples(order.file))


def test_a_page_that_does_not_come_in_time_is_a_sample_that_says_so(tmp_path: Path, server: PagedServer) -> None:
    server.hangs_after_bytes = 0
    sample = PageLook(watched(tmp_path, server, page_within_s=0.2), server.address, "/metrics")()
    assert (sample.page, sample.missed) == (None, "no whole page within 0.2 s")
    assert sample.page_took_s is not None
    assert sample.page_took_s >= 0.2


def test_a_key_for_the_page_is_written_nowhere(tmp_path: Path, server: PagedServer) -> None:
    order = watched(tmp_path, server, headers={"Authorization": "Bearer secret"})
    with ServerWatch(order):
        server.wait_asked(1)
        children = psutil.Process().children(recursive=True)
        assert children
        assert "secret" not in json.dumps([child.cmdline() for child in children])
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert "secret" not in order.file.read_text()


def test_a_server_that_was_started_here_is_watched_with_all_its_processes(tmp_path: Path) -> None:
    with_page = plan("child").model_copy(update={"metrics": "/metrics", "metric_names": vllm.METRIC_NAMES})
    with Server(with_page, tmp_path, tmp_path / "log.txt") as started:
        started.wait_ready(LONG)
        watch = ServerWatch.of(started, tmp_path, time.perf_counter())
        with watch:
            until(lambda: len(machine_samples(watch.watched.file)) >= 2)
            started.stop()
    found = read_server_samples(tmp_path / "server.0.jsonl")
    machine = machine_samples(tmp_path / "server.0.jsonl")
    assert (machine[0].processes, machine[-1].processes, machine[-1].resident_bytes) == (2, 0, 0)
    assert all(later.cpu_s >= earlier.cpu_s for earlier, later in pairwise(machine))  # type: ignore[operator]
    assert "status 503" in {one.missed.removeprefix("HTTPException: ") for one in found if one.missed}


def test_a_watch_can_be_stopped_twice_and_before_it_begins(tmp_path: Path, server: PagedServer) -> None:
    watch = ServerWatch(watched(tmp_path, server))
    watch.stop()
    watch.start()
    watch.stop()
    watch.stop()
    assert read_server_samples(watch.watched.file)


def test_where_nothing_can_be_seen_nothing_is_looked_at(tmp_path: Path) -> None:
    order = Watched(tmp_path / "server.0.jsonl", 0.0)
    assert rounds(order, io.StringIO()) == []
    with ServerWatch(order):
        pass
    assert read_server_samples(order.file) == []


def test_a_watch_that_cannot_write_ends_nothing(tmp_path: Path) -> None:
    order = Watched(tmp_path / "missing" / "server.0.jsonl", 0.0, pid=os.getpid())
    with ServerWatch(order) as watch:
        watch.look()
    assert read_server_samples(order.file) == []


class FullDisk(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def write(self, text: str) -> int:
        if self.refused < 2:
            self.refused += 1
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_disk_that_is_full_for_a_while_loses_the_samples_of_that_while_only() -> None:
    file = FullDisk()
    taken = 0

    def look() -> ServerSample:
        nonlocal taken
        taken += 1
        if taken == 4:
            own.finish()
        return ServerSample(at_s=taken)

    own = WatchRounds(look, 0.001, file)
    own.run()
    assert [json.loads(line)["at_s"] for line in file.getvalue().splitlines()] == [3, 4, 5]


def test_samples_are_taken_when_they_are_asked_for(tmp_path: Path, server: PagedServer) -> None:
    order = watched(tmp_path, server, interval_s=3600.0, page_interval_s=3600.0)
    with ServerWatch(order) as watch:
        until(lambda: len(read_server_samples(order.file)) == 2)
        asked_s = time.perf_counter() - order.origin_s
        watch.look()
        until(lambda: len(read_server_samples(order.file)) == 4)
    found = read_server_samples(order.file)
    assert [one.at_s > asked_s for one in found] == [False] * 2 + [True] * 4
    assert [sum(bool(one.page) for one in found), len(machine_samples(order.file))] == [3, 3]
    watch.look()


KILLED = """
import signal, sys
from pathlib import Path
import psutil
from llmexp.launchers.serving.watch.server_watch import ServerWatch
from llmexp.launchers.serving.watch.watching import Watched
watch = ServerWatch(Watched(Path({folder!r}) / "server.0.jsonl", 0.0, pid=1, interval_s=0.02))
watch.start()
print(psutil.Process().children()[0].pid, flush=True)
signal.pause()
"""


def test_no_watch_stays_where_our_own_process_is_killed(tmp_path: Path) -> None:
    program = KILLED.format(folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as ours:
        assert ours.stdout is not None
        watching = psutil.Process(int(ours.stdout.readline()))
        os.kill(ours.pid, signal.SIGKILL)
    assert psutil.wait_procs([watching], timeout=PATIENCE_S)[1] == []
