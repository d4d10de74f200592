from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmexp.launch.classify import Ended, classify
from llmexp.record.result import RunStatus
from llmexp.record.samples import RankFailure

# As torchrun of torch 2.13 prints it.
TORCHRUN = """\
E1121 03:52:31.000000 1 torch/distributed/elastic/multiprocessing/api.py:1027] failed (exitcode: {root}) \
local_rank: 0 (pid: 11) of binary: python
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
worker.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : {later}
  host      : node
  rank      : 1 (local_rank: 1)
  exitcode  : {other} (pid: 12)
  error_file: <N/A>
  traceback : Signal
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_03:52:31
  host      : node
  rank      : 0 (local_rank: 0)
  exitcode  : {root} (pid: 11)
  error_file: <N/A>
  traceback : Signal
============================================================
"""


@pytest.fixture
def repeat(tmp_path: Path) -> Path:
    path = tmp_path / "repeat.0"
    path.mkdir()
    return path


def torchrun_says(repeat: Path, root: int, other: int, later: str = "2026-11-21_03:52:31") -> None:
    (repeat / "log.agent.txt").write_text(TORCHRUN.format(root=root, other=other, later=later))


def fail(repeat: Path, rank: int, kind: str, at_ns: int = 0) -> None:
    path = repeat / f"failure.{rank}.json"
    path.write_text(RankFailure(rank=rank, kind=kind, message=f"{kind} here").model_dump_json())
    os.utime(path, ns=(at_ns, at_ns))


def ending(repeat: Path, exit_code: int = 1, killed_for_memory: bool = False):
    decided = classify(Ended(repeat, 2, exit_code, killed_for_memory))
    return decided.status, decided.reason


def test_first_failure_written_is_the_one_named(repeat):
    fail(repeat, 0, "error", at_ns=2)
    fail(repeat, 1, "error", at_ns=1)
    torchrun_says(repeat, 1, 1)
    assert ending(repeat) == (RunStatus.FAILED, "rank 1: error here")


def test_out_of_memory_wins_over_an_earlier_error(repeat):
    fail(repeat, 0, "error", at_ns=1)
    fail(repeat, 1, "oom", at_ns=2)
    assert ending(repeat) == (RunStatus.OOM, "rank 1: oom here")


def test_a_server_that_hangs_is_a_timeout(repeat):
    fail(repeat, 0, "timeout")
    assert ending(repeat) == (RunStatus.TIMEOUT, "rank 0: timeout here")


def test_missing_hardware_is_a_typed_failure(repeat):
    fail(repeat, 0, "error", at_ns=1)
    fail(repeat, 1, "hardware", at_ns=2)
    assert ending(repeat) == (RunStatus.FAILED, "hardware: rank 1: hardware here")


def test_killed_peer_wins_over_the_broken_connection_that_it_caused(repeat):
    fail(repeat, 0, "error")
    torchrun_says(repeat, 1, -9)
    assert ending(repeat) == (RunStatus.KILLED, "rank 1 was killed by SIGKILL")


def test_kill_by_the_clean_up_does_not_hide_the_error(repeat):
    fail(repeat, 0, "error")
    torchrun_says(repeat, 1, -9, later="2026-11-21_03:52:36")
    assert ending(repeat) == (RunStatus.FAILED, "rank 0: error here")


def test_abort_of_a_watchdog_does_not_hide_the_error(repeat):
    fail(repeat, 1, "error")
    torchrun_says(repeat, -6, 1)
    assert ending(repeat) == (RunStatus.FAILED, "rank 1: error here")


GLIBC = "step 1\nFatal glibc error: failed to register TLS destructor: out of memory\n"
LOADER = "cannot allocate memory for thread-local data: ABORT\n"
CPP = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
CUDA = """\
terminate called after throwing an instance of 'c10::AcceleratorError'
  what():  CUDA error: out of memory
CUDA kernel errors might be asynchronously reported at some other API call.
frame #0: c10::Error::Error
"""
STACKS = 'Fatal Python error: Aborted\n\nThread 0x00007f3e (most recent call first):\n  File "x.py", line 1 in x\n'


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (LOADER, "cannot allocate memory for thread-local data: ABORT"),
        (GLIBC + STACKS, "Fatal glibc error: failed to register TLS destructor: out of memory"),
        (CPP + STACKS, "terminate called after throwing an instance of 'std::bad_alloc'"),
        (CUDA + STACKS, "CUDA error: out of memory"),
    ],
)
@pytest.mark.parametrize(
    "launchers_words",
    ["rank 1 ended with exit code -6\n", "rank 1 ended with exit code 127\n", "exits with return code = -6\n"],
)
def test_native_codes_end_for_want_of_memory_is_out_of_memory_whatever_its_peers_tell(
    repeat, words, line, launchers_words
):
    fail(repeat, 0, "error")
    (repeat / "log.agent.txt").write_text(launchers_words)
    (repeat / "log.0.txt").write_text("RuntimeError: Connection reset by peer\n")
    (repeat / "log.1.txt").write_text(words)
    assert ending(repeat) == (RunStatus.OOM, f"rank 1: {line}")


def test_a_rank_that_reported_another_error_is_not_out_of_memory_for_its_words(repeat):
    fail(repeat, 0, "error")
    (repeat / "log.0.txt").write_text("ValueError: of a text that tells how one runs out of memory\n")
    assert ending(repeat) == (RunStatus.FAILED, "rank 0: error here")


def test_abort_is_named_with_its_last_words(repeat):
    uncaught = (
        "terminate called after throwing an instance of 'gloo::IoException'\n  what():  [enforce fail] of a pair\n"
    )
    (repeat / "log.agent.txt").write_text("rank 0 ended with exit code -6\n")
    (repeat / "log.0.txt").write_text(f"a warning that memory may run out of memory\n{uncaught}{STACKS}")
    assert ending(repeat) == (RunStatus.KILLED, "rank 0 was killed by SIGABRT: [enforce fail] of a pair")


def test_signal_without_any_account_is_named(repeat):
    torchrun_says(repeat, -15, -15)
    assert ending(repeat) == (RunStatus.KILLED, "rank 0 was killed by SIGTERM")


def test_crash_is_named(repeat):
    torchrun_says(repeat, -11, -15)
    assert ending(repeat) == (RunStatus.KILLED, "rank 0 was killed by SIGSEGV")


def test_kill_by_the_kernel_for_memory_is_out_of_memory(repeat):
    torchrun_says(repeat, -9, -15)
    assert ending(repeat, killed_for_memory=True) == (
        RunStatus.OOM,
        "rank 0 was killed by SIGKILL by the kernel because host memory ran out",
    )


def test_crash_while_the_kernel_kills_others_is_not_out_of_memory(repeat):
    torchrun_says(repeat, -11, -15)
    assert ending(repeat, killed_for_memory=True)[0] is RunStatus.KILLED


def test_deepspeeds_launcher_does_not_say_which_rank(repeat):
    (repeat / "log.agent.txt").write_text(
        "[ERROR] [launch.py:341] ['python', '-u', '--local_rank=1'] exits with return code = -9\n"
    )
    assert ending(repeat) == (RunStatus.KILLED, "a rank was killed by SIGKILL")


def test_import_error_before_the_rank_could_write_is_found_in_the_launchers_log(repeat):
    (repeat / "log.agent.txt").write_text(
        "Traceback\nModuleNotFoundError: No module named 'torch'\n"
        + TORCHRUN.format(root=1, other=1, later="2026-11-21_03:52:31")
    )
    assert ending(repeat) == (
        RunStatus.FAILED,
        "the launcher ended with exit code 1: ModuleNotFoundError: No module named 'torch'",
    )


def test_ranks_log_speaks_before_the_launchers(repeat):
    (repeat / "log.1.txt").write_text("step 3\nValueError: of rank 1\n")
    (repeat / "log.agent.txt").write_text("OSError: of the launcher\n")
    assert ending(repeat)[1].endswith("ValueError: of rank 1")


def test_silent_launcher_is_said_to_be_silent(repeat):
    assert ending(repeat, exit_code=3) == (RunStatus.FAILED, "the launcher ended with exit code 3: nothing was printed")


def test_account_cut_off_by_a_kill_is_left_out(repeat):
    (repeat / "failure.0.json").write_text('{"rank": 0, "ki')
    assert ending(repeat, exit_code=-9) == (RunStatus.KILLED, "the launcher was killed by SIGKILL")
