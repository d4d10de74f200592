from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from patience import HANG_S, until
from planning import make_plan

from llmexp.errors import ServerDiedError, ServerError, ServerHungError, ServerNotReadyError
from llmexp.launchers.rank import frame
from llmexp.record.result import to_json

WORK = """
import resource, sys
from llmexp.launchers.training.frame import train
from llmexp.record.samples import TrainingSummary, StateBytes

def work(plan, rank):
    print("method", plan.method, "rank", rank.index, "of", rank.world_size)
    {body}
    return TrainingSummary(rank=rank.index, window_wall_s=1.0, time_to_first_step_s=rank.seconds_since_start(),
                       parameters=1, trainable_parameters=1,
                       peak_rss_bytes=1, state_bytes={{"parameters": StateBytes()}}, what_ran={{}})

train(work)
"""
NO_GPU = (
    "from llmexp.launchers.rank.frame import device_of; "
    "device_of(plan.config.hardware.model_copy(update={'name': 'a800', 'device': 'cuda'}), 1)"
)
OUT_OF_MEMORY = "import torch; resource.setrlimit(resource.RLIMIT_DATA, (2**31, 2**31)); torch.ones(2**31)"


def run(folder: Path, body: str) -> tuple[int, Path]:
    (folder / "plan.json").write_text(to_json(make_plan("hardware=cpu", "method=R+F")))
    repeat = folder / "repeat.0"
    repeat.mkdir()
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, "-c", WORK.format(body=body), str(repeat)],
        env=environment,
        capture_output=True,
        timeout=HANG_S,
    )
    assert done.stdout == b""
    return done.returncode, repeat


def test_a_rank_that_finishes_leaves_its_summary_and_its_log(tmp_path: Path) -> None:
    code, repeat = run(tmp_path, "pass")
    assert code == 0
    assert sorted(path.name for path in repeat.iterdir()) == ["log.1.txt", "process.1.json", "rank.1.json"]
    assert (repeat / "log.1.txt").read_text() == "method F+R rank 1 of 2\n"
    assert 0 < json.loads((repeat / "rank.1.json").read_text())["time_to_first_step_s"] < 60


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (NO_GPU, "hardware", "WrongHardwareError: hardware=a800 needs GPU 1; torch"),
        ("raise ValueError('no such\\nthing')", "error", "ValueError: no such"),
        ("raise MemoryError('all gone')", "oom", "MemoryError: all gone"),
        (OUT_OF_MEMORY, "oom", "RuntimeError: [enforce fail"),
        ("raise SystemExit(0)", "error", "SystemExit: 0"),
    ],
)
def test_a_rank_that_breaks_says_why(tmp_path: Path, body: str, kind: str, message: str) -> None:
    code, repeat = run(tmp_path, body)
    failure = json.loads((repeat / "failure.1.json").read_text())
    assert code == 1
    assert (failure["kind"], failure["rank"]) == (kind, 1)
    assert failure["message"].startswith(message)
    assert "Traceback" in failure["traceback"]
    assert failure["message"][:20] in (repeat / "log.1.txt").read_text()
    assert not (repeat / "rank.1.json").exists()


DRIVER = """
import sys
from pathlib import Path
from llmexp.record.lock import acquire
with acquire(Path(sys.argv[1])):
    print("holds", flush=True)
    input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a rank does not look")
def test_a_rank_that_nobody_would_end_goes_with_its_driver(tmp_path: Path) -> None:
    """As in a container, whose daemon has started it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / ".drivers")], **pipes) as driver:
        assert driver.stdout
        driver.stdout.readline()
        at_work = tmp_path / "at work"
        ending = threading.Thread(target=lambda: (until(at_work.exists), driver.kill()))
        ending.start()
        code, repeat = run(tmp_path, f"open({str(at_work)!r}, 'w'); import time; time.sleep(1000)")
        ending.join()
    assert code == 1
    assert "the driver of this run is gone" in (repeat / "log.1.txt").read_text()


@pytest.mark.parametrize(
    ("message", "oom"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB", True),
        ("CUDA error: out of memory", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("NCCL error: unhandled cuda error, NCCL version 2.27.5\nLast error:\nCuda failure 2 'out of memory'", True),
        ("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate", True),
        ("CUDA error: an illegal memory access was encountered", False),
        ("NCCL error: unhandled system error", False),
    ],
)
def test_every_librarys_words_for_missing_memory_are_known(message: str, oom: bool) -> None:
    assert (frame._kind(RuntimeError(message)) == "oom") is oom
    assert frame._kind(ValueError(message)) == "error"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServerDiedError("it ended", 1), "error"),
        (ServerHungError("it hangs"), "timeout"),
        (ServerNotReadyError("it never answered"), "timeout"),
    ],
)
def test_a_servers_end_is_an_error_its_silence_a_timeout_and_want_of_memory_comes_first(
    error: ServerError, kind: str
) -> None:
    assert frame._kind(error) == kind
    error.is_out_of_memory = True
    assert frame._kind(error) == "oom"


@pytest.mark.parametrize(
    ("device", "version", "backend", "named"),
    [("cpu", "2.13.0", "gloo", False), ("cuda", "2.13.0", "nccl", True), ("cuda", "2.7.0+cu128", "nccl", False)],
)
def test_ranks_wait_for_peers_as_long_as_the_driver_lets_them(
    monkeypatch: pytest.MonkeyPatch, device: str, version: str, backend: str, named: bool
) -> None:
    """NCCL would end them after ten minutes, while rank 0 writes a large model."""
    given: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda *words, **options: given.append((words, options))
    )
    frame.join_group(torch.device(device))
    [(words, options)] = given
    assert words == (backend,)
    assert (options["device_id"] is not None) == named
    assert options["timeout"] >= timedelta(days=1)
