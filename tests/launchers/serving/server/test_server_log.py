"""The last words of a server's log: in a line, in several, and whether they mean that memory ran out."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.launchers.serving.server.server_log import LAST_LINES, ServerLog, is_no_memory

# How vLLM's log ends where its engine fails: the cause stands first, and each line has colors.
ENGINE_FAILED = """\
\x1b[0;36m(EngineCore pid=7)\x1b[0;0m ERROR 09-04 12:00:00 [core.py:700] ValueError: unknown kernel
Traceback (most recent call last):
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
shutting down
"""


@pytest.fixture
def log(tmp_path: Path) -> ServerLog:
    return ServerLog(tmp_path / "log.server.txt")


def test_a_failed_servers_line_is_the_cause_and_that_of_others_the_last(log: ServerLog) -> None:
    log.path.write_text(ENGINE_FAILED)
    cause = "(EngineCore pid=7) ERROR 09-04 12:00:00 [core.py:700] ValueError: unknown kernel"
    assert log.in_a_line(is_error=True) == f"{log.path} ends: {cause}"
    assert log.in_a_line(is_error=False) == f"{log.path} ends: shutting down"


def test_words_of_an_earlier_start_do_not_count(log: ServerLog) -> None:
    log.path.write_text("torch.OutOfMemoryError: CUDA out of memory\n")
    assert log.tells_of_no_memory()
    log.begin()
    assert not log.tells_of_no_memory()
    assert log.in_a_line(is_error=True) == f"{log.path} is empty"
    assert log.last_lines() == ""


def test_memory_is_named_before_what_followed_it(log: ServerLog) -> None:
    log.path.write_text("RuntimeError: CUDA error: out of memory\nKeyError: 'engine'\nbye\n")
    assert log.in_a_line(is_error=True).endswith("ends: RuntimeError: CUDA error: out of memory")


def test_only_so_much_of_a_long_log_is_told(log: ServerLog) -> None:
    log.path.write_text("".join(f"line {number}\n" for number in range(5000)) + "x" * 1000)
    assert len(log.last_lines().splitlines()) == LAST_LINES
    assert log.in_a_line(is_error=True).endswith("x" * 300 + "…")


@pytest.mark.parametrize(
    "words",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
        "OSError: [Errno 12] Cannot allocate memory",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_servers_words_for_memory_that_ran_out(words: str) -> None:
    assert is_no_memory(words)


@pytest.mark.parametrize(
    "words",
    [
        "lower memory_fraction to avoid out of memory errors",
        "INFO: memory pool of 2.0 GiB",
        "ConnectionError: the peer has gone",
    ],
)
def test_words_about_memory_that_did_not_run_out(words: str) -> None:
    assert not is_no_memory(words)
