"""Faults by class.

A fault returns the function that heals it, or None where nothing is left to heal.
It raises MissedError where there is nothing to break.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from chaos import power, ranks
from chaos.driver import ANOTHER_USER, OWN_HOST_NAME, OWN_NAMESPACES, Place, can_start
from llmexp.record.folder import find_runs

if TYPE_CHECKING:
    from chaos.episode import Episode
    from chaos.tracker import Network, Server

Heal = Callable[[], None]
Fault = Callable[["Episode"], Heal | None]
FIND_WITHIN_S = 4.0
# The errors that a clock can have.
STEPS_S = (-3600.0, -2.0, 2.0, 3600.0)
DRIVERS = ".drivers"


class MissedError(Exception):
    """An error: there was nothing to break, because the sweep had ended."""


def signal_to(number: signal.Signals, *words: str) -> Fault:
    """Send a signal to one of the processes whose command line has these words, at some moment of its life."""

    def inject(episode: Episode) -> None:
        _signalled(episode, number, words)

    return inject


def stopped(*words: str) -> Fault:
    """Stop such a process as a debugger does, and continue it later if it still exists."""

    def inject(episode: Episode) -> Heal:
        process = _signalled(episode, signal.SIGSTOP, words)

        def go_on() -> None:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

        return go_on

    return inject


def _signalled(episode: Episode, number: signal.Signals, words: Sequence[str]) -> psutil.Process:
    deadline = time.monotonic() + FIND_WITHIN_S
    while not (found := episode.surroundings.processes(*words)):
        if time.monotonic() > deadline or not episode.driver.lives:
            raise MissedError
        time.sleep(0.02)
    time.sleep(episode.random.uniform(0, 0.4))
    process: psutil.Process = episode.random.choice(found)
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        raise MissedError from None
    return process


def _signal_to_driver(number: signal.Signals) -> Fault:
    def inject(episode: Episode) -> None:
        if not episode.driver.lives:
            raise MissedError
        episode.driver.send(number)

    return inject


def _killed_together(*modules: str) -> Fault:
    """Kill the driver and its processes of these modules at one moment, so that none can end what the others leave."""

    def inject(episode: Episode) -> None:
        found = [process for module in modules for process in episode.surroundings.processes(module)]
        if not found:
            raise MissedError
        episode.driver.send(signal.SIGSTOP)
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        episode.driver.send(signal.SIGKILL)

    return inject


def _second_driver(place: Place | None = None) -> Fault:
    def inject(episode: Episode) -> None:
        episode.start_beside(place)

    return inject


def _output_closed(episode: Episode) -> None:
    if not episode.driver.lives:
        raise MissedError
    episode.driver.close_output()


def _host_renamed(episode: Episode) -> None:
    if not episode.driver.rename_host(f"renamed-{episode.random.randrange(1000)}"):
        raise MissedError


def _clock_steps(episode: Episode) -> None:
    episode.surroundings.shift_file.write_text(str(episode.random.choice(STEPS_S)))


def _power_lost(episode: Episode) -> None:
    while found := episode.surroundings.processes():
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    power.lose(episode.surroundings.outputs, episode.surroundings.forced_file, episode.random)


def _files_skewed(episode: Episode) -> None:
    """Give files the times of a server whose clock differs.

    Files of living drivers are left out, because they get new times continually.
    """
    shift_s = episode.random.choice(STEPS_S)
    for path in episode.sweep.rglob("*"):
        if DRIVERS not in path.parts and path.is_file() and not path.is_symlink():
            with suppress(OSError):
                os.utime(path, (at_s := path.stat().st_mtime + shift_s, at_s))


def _stray_names(episode: Episode) -> None:
    """Leave the stray files of file servers, editors and people, for good."""
    folders = [folder.path for folder in find_runs(episode.sweep)] if episode.sweep.exists() else []
    if not folders:
        raise MissedError
    place = episode.random.choice(folders)
    with suppress(OSError):  # the name exists already, or the disk is full
        for name in (
            ".nfs00000001",
            "result.json.bak",
            "repeat.0.bak",
            "a name\nof two lines",
            os.fsdecode(b"latin-\xe9"),
        ):
            (place / name).write_text("{")
        (place / "previous" / ".nfs00000002").mkdir(parents=True)
        (place / "previous" / "old").symlink_to("nowhere")
        os.mkfifo(place / "git.pipe.diff")


def _inodes_taken(episode: Episode) -> Heal:
    episode.disk.take_inodes(episode.surroundings)
    return lambda: episode.disk.give_inodes(episode.surroundings)


def _disk_full(episode: Episode) -> Heal:
    episode.disk.fill(episode.surroundings)
    return lambda: episode.disk.free(episode.surroundings)


def _disk_read_only(episode: Episode) -> Heal:
    episode.disk.forbid_writing(episode.surroundings)
    return lambda: episode.disk.allow_writing(episode.surroundings)


def _files_answer(number: int) -> Fault:
    def inject(episode: Episode) -> Heal:
        episode.surroundings.error_file.write_text(str(number))
        return episode.surroundings.error_file.unlink

    return inject


FAULTS: Mapping[str, Fault] = {
    "rank killed": signal_to(signal.SIGKILL, "chaos.ranks", ranks.RANK),
    "rank exits": signal_to(ranks.LEAVES, "chaos.ranks", ranks.RANK),
    "rank raises": signal_to(ranks.RAISES, "chaos.ranks", ranks.RANK),
    "rank out of memory": signal_to(ranks.RUNS_OUT_OF_MEMORY, "chaos.ranks", ranks.RANK),
    "launcher killed": signal_to(signal.SIGKILL, "chaos.ranks", ranks.LAUNCHER),
    "supervisor killed": signal_to(signal.SIGKILL, "llmexp.launch.supervisor"),
    "rank stopped": stopped("chaos.ranks", ranks.RANK),
    "launcher stopped": stopped("chaos.ranks", ranks.LAUNCHER),
    "supervisor stopped": stopped("llmexp.launch.supervisor"),
    "driver SIGKILL": _signal_to_driver(signal.SIGKILL),
    "driver SIGTERM": _signal_to_driver(signal.SIGTERM),
    "driver SIGINT": _signal_to_driver(signal.SIGINT),
    "driver SIGHUP": _signal_to_driver(signal.SIGHUP),
    "output closed": _output_closed,
    "second driver": _second_driver(),
    "disk full": _disk_full,
    "no inodes": _inodes_taken,
    "disk read-only": _disk_read_only,
    "quota reached": _files_answer(errno.EDQUOT),
    "stale file handle": _files_answer(errno.ESTALE),
    "input/output error": _files_answer(errno.EIO),
    "stray names": _stray_names,
    "file times skewed": _files_skewed,
}


def on_one_host() -> Mapping[str, Fault]:
    """Return the faults that are possible where drivers and ranks are on this host, as far as this user may."""
    places = {
        "host renamed": OWN_HOST_NAME,
        "second driver in a container": OWN_NAMESPACES,
        "second driver of another user": ANOTHER_USER,
    }
    faults = {
        name: _host_renamed if place is OWN_HOST_NAME else _second_driver(place)
        for name, place in places.items()
        if can_start(place)
    }
    killed = {"driver and supervisor killed": _killed_together("llmexp.launch.supervisor")}
    return {**killed, "clock steps": _clock_steps, "power lost": _power_lost, **faults}


def of_the_tracker(server: Server, network: Network) -> Mapping[str, Fault]:
    """Return the faults of a tracking server and of the network to it."""

    def killed(episode: Episode) -> Heal:
        server.kill()
        return server.start

    def hangs(episode: Episode) -> Heal:
        server.send(signal.SIGSTOP)
        return lambda: server.send(signal.SIGCONT)

    def turned(state: str) -> Fault:
        def inject(episode: Episode) -> Heal:
            network.state = state
            return lambda: setattr(network, "state", "well")

        return inject

    return {
        "server killed": killed,
        "server hangs": hangs,
        "network cut": turned("cut"),
        "network stalls": turned("stalled"),
        "network slow": turned("slow"),
    }
