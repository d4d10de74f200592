"""Runs a sweep with its faults until it is complete, and records losses as text."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chaos.disk import Disk
from chaos.driver import HERE, OWN_HOST_NAME, Driver, Place, can_start
from chaos.faults import FAULTS, Fault, MissedError, of_the_tracker, on_one_host
from chaos.invariants import answers, is_answered, status_is_true, store_equals_folders
from chaos.surroundings import Surroundings
from chaos.tracker import Network, Server

METHODS = ("Naive", "F", "R", "Z2")
PROTOCOL = ("measure=smoke", "measure.steps=15", "measure.profile=false")
# The longest pause between two faults, and the longest time that one lasts.
SPAN_S = 2.5
OUTAGE_S = 1.5


@dataclass
class Episode:
    """A sweep of a few quick runs.

    With a tracker it records to the server through the network, else to SQLite beside the outputs.
    """

    number: int
    random: random.Random
    surroundings: Surroundings
    disk: Disk
    tracker: tuple[Server, Network] | None
    further_words: tuple[str, ...] = ()
    faults: Counter[str] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)
    drivers: list[Driver] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the sweep, and of its experiment in MLflow."""
        return f"episode-{self.number}"

    @property
    def sweep(self) -> Path:
        """The sweep's folder."""
        return self.surroundings.outputs / self.name

    @property
    def driver(self) -> Driver:
        """The driver that was started last."""
        return self.drivers[-1]

    @property
    def store(self) -> str:
        """MLflow's address, without the network that can be broken."""
        return self.tracker[0].uri if self.tracker else f"sqlite:///{self.surroundings.outputs}/mlflow.db"

    @property
    def runs(self) -> tuple[str, ...]:
        """The words of the sweep's runs."""
        return (f"method={','.join(METHODS)}", "model=tiny", "hardware=cpu", "engine=scripted", *PROTOCOL)

    @property
    def out_of_memory(self) -> int:
        """How often the suite made a run go out of memory."""
        return self.faults["rank out of memory"]

    @property
    def possible(self) -> Mapping[str, Fault]:
        """The faults that are possible here."""
        return {**FAULTS, **on_one_host(), **(of_the_tracker(*self.tracker) if self.tracker else {})}

    def play(self, faults: int) -> None:
        """Break the sweep this many times at random moments, and check it each time; then let it be completed."""
        self._start()
        kinds = self.random.sample(list(self.possible), len(self.possible))
        for index in range(faults):
            self._break_once(kinds[index % len(kinds)])
        self._end()
        self._resume()
        self._check(store_equals_folders(self.store, self.name, self.sweep))

    @property
    def place(self) -> Place:
        """The place where drivers start: one with a host name that can be changed, where this user may."""
        return OWN_HOST_NAME if can_start(OWN_HOST_NAME) else HERE

    def start_beside(self, place: Place | None = None) -> None:
        """Start one more driver of the same sweep, at the usual place or at another."""
        words = [*self.runs, *self.further_words, f"sweep.outputs={self.surroundings.outputs}"]
        words += [f"sweep.name={self.name}", f"tracking.experiment={self.name}", "tracking.timeout_s=5"]
        words += [f"tracking.uri={self.tracker[1].uri}", "tracking.live=true"] if self.tracker else []
        log = self.surroundings.scratch / f"{self.name}.driver.{len(self.drivers)}.txt"
        self.drivers.append(
            Driver(self.surroundings, [*words, *self._rerun()], log, self.place if place is None else place)
        )

    def _rerun(self) -> list[str]:
        """Ask to measure all runs again where nothing is left to be broken."""
        return ["rerun=all"] if len(answers(self.sweep)) == len(METHODS) and not self._living() else []

    def _start(self) -> None:
        self._answered = answers(self.sweep)
        self.start_beside()
        self._keeps_answers = "rerun=all" not in self.driver.words

    def _under_way(self) -> Collection[Hashable]:
        """Return the drivers of the runs that `llmexp status` may call running."""
        return [driver.pid for driver in self._living()]

    def _ending_of(self, driver: Driver) -> int | None:
        """Return a driver's exit code, or None where it stands still for too long."""
        return driver.ends()

    def _await_the_rest(self) -> None:
        """Wait for what may go on without a driver; here that is nothing."""

    def _living(self) -> list[Driver]:
        return [driver for driver in self.drivers if driver.lives]

    def _break_once(self, kind: str) -> None:
        while True:
            self._pause()
            if not self._living():
                self._end()
                self._start()
                continue
            try:
                heal = self.possible[kind](self)
            except MissedError:
                continue
            break
        self.faults[kind] += 1
        if heal:
            time.sleep(self.random.uniform(0, OUTAGE_S))
            if kind.startswith("disk"):
                self._look()
            heal()
        self._look()

    def _pause(self) -> None:
        """Wait a random time between two faults."""
        time.sleep(self.random.uniform(0, SPAN_S))

    def _look(self) -> None:
        self._check(status_is_true(self.surroundings, self.sweep, self._under_way))

    def _end(self) -> None:
        """Wait for all drivers, and check what they leave."""
        for driver in self.drivers:
            if self._ending_of(driver) is None:
                self._lose(f"driver {driver.pid} does not end")
                driver.send(signal.SIGKILL)
            if "Traceback" in driver.said and "KeyboardInterrupt" not in driver.said:
                self._lose(f"a driver printed a traceback:\n{driver.said}")
        self._await_the_rest()
        if left := self.surroundings.outliving():
            self._lose(f"processes outlived their driver: {[process.cmdline() for process in left]}")
        self._look()
        if self._keeps_answers and not self._answered.items() <= answers(self.sweep).items():
            self._lose("a run that had its answer was measured again, or lost it")
        self.drivers.clear()

    def _resume(self) -> None:
        """Check that the same command succeeds once nothing is broken, and that `llmexp sync` can copy everything."""
        self._start()
        if "rerun=all" in self.driver.words:
            self._keeps_answers = False
        code = self._ending_of(self.driver)
        if code != 0:
            self._lose(f"the resume ended with {code}:\n{self.driver.said}")
        self._end()
        self._check(is_answered(self.sweep, len(METHODS), self.out_of_memory))
        words = ["sync", str(self.sweep), "--uri", self.store]
        done = self.surroundings.run(*words)
        if done.returncode:
            self._lose(f"sync ended with {done.returncode}: {done.stderr.strip()}")

    def _check(self, broken: Iterator[str]) -> None:
        for words in broken:
            self._lose(words)

    def _lose(self, words: str) -> None:
        self.losses.append(f"{self.name}, after {', '.join(self.faults) or 'nothing'}: {words}")
