"""A separate SLURM on this host, for tests and faults, with everything below one folder.

It has accounting and two nodes with two GPUs each, which are plain files. It needs root and Debian's slurm-wlm,
slurmdbd, mariadb-server and munge; `make slurm-test` says so and installs them. `python -m chaos.cluster FOLDER` runs
one for a person, until Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import psutil

from chaos.cluster_files import GRANTS, NODES, configure
from llmexp.record.process import die_with_parent

PROGRAMS = ("slurmctld", "slurmdbd", "slurmd", "munged", "mungekey", "mariadbd", "mariadb-install-db")
SBIN = "/usr/sbin:/sbin"
STARTED_WITHIN_S = 90.0


def missing() -> list[str]:
    """Name the things that this host lacks for a cluster."""
    path = f"{os.environ['PATH']}:{SBIN}"
    absent = [name for name in PROGRAMS if not shutil.which(name, path=path)]
    return absent + ([] if find_spec("submitit") else ["submitit"]) + (["root"] if os.getuid() else [])


class QueuedJob(NamedTuple):
    """A job that has not ended, in SLURM's own terms."""

    number: str
    name: str
    state: str
    reason: str


class Cluster:
    """A running cluster, as a context manager.

    Its daemons are children of this process; the exit ends them with all that they started.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.env = os.environ | {"SLURM_CONF": str(root / "etc" / "slurm.conf"), "PATH": f"{os.environ['PATH']}:{SBIN}"}

    def __enter__(self) -> Cluster:
        for name in ("etc", "log", "run", "state", "munge", "gpus", "database", *(f"spool/{node}" for node in NODES)):
            (self.root / name).mkdir(parents=True)
        self.root.chmod(0o755)  # munge works only in a folder that every user may enter
        try:
            self._database_port = configure(self.root)
            self._start_munge()
            self._start_database()
            self._found_accounts()
            self.start_controller()
            for node in NODES:
                self.start_node(node)
            self.wait_for(lambda: len(self.nodes("idle")) == len(NODES))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in ("slurmctld", *NODES, "slurmdbd", "mariadbd", "munged"):
            if name in self._daemons:
                self.kill(name)

    def run(self, *command: str) -> str:
        """Return the output of one of SLURM's commands."""
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=True).stdout

    def nodes(self, states: str) -> list[str]:
        """Return the names of the nodes in these states, or none while the controller is down."""
        done = subprocess.run(
            ["sinfo", "-h", "-N", "-t", states, "-p", "main", "-o", "%N"], env=self.env, capture_output=True, text=True
        )
        return done.stdout.split()

    def jobs(self) -> list[QueuedJob]:
        """Return every job that has not ended; wait for a controller that has only just been started."""
        command = ["squeue", "--noheader", "--array", "--format=%i|%j|%T|%r"]
        found: list[subprocess.CompletedProcess[str]] = []

        def answers() -> bool:
            found.append(subprocess.run(command, env=self.env, capture_output=True, text=True))
            return found[-1].returncode == 0

        self.wait_for(answers)
        return [QueuedJob(*line.split("|", 3)) for line in found[-1].stdout.splitlines()]

    def hurry(self) -> None:
        """Let requeued jobs begin now, for which SLURM would wait two minutes, and resume nodes that it has drained."""
        waiting = subprocess.run(
            ["squeue", "--noheader", "--array", "--states=PENDING", "--format=%i|%r"],
            env=self.env,
            capture_output=True,
            text=True,
        )
        for number, reason in (line.split("|") for line in waiting.stdout.splitlines()):
            if reason == "BeginTime":
                subprocess.run(
                    ["scontrol", "update", f"JobId={number}", "StartTime=now"], env=self.env, capture_output=True
                )
        for node in self.nodes("drain,down"):
            subprocess.run(
                ["scontrol", "update", f"NodeName={node}", "State=RESUME"], env=self.env, capture_output=True
            )

    def send(self, daemon: str, number: signal.Signals) -> None:
        """Send a daemon a signal."""
        self._daemons[daemon].send_signal(number)

    def start_controller(self) -> None:
        """Start the controller from the state that it saved when it was ended."""
        self._start("slurmctld", "slurmctld", "-D")

    def stop_controller(self) -> None:
        """End the controller as an administrator does: it saves its state."""
        process = self._daemons.pop("slurmctld")
        process.terminate()
        process.wait()

    @contextmanager
    def forgetting(self, aside: Path) -> Iterator[None]:
        """Lose what is submitted inside the context, as if the controller was killed before it saved.

        It starts again from the state at the context's beginning.
        """
        self.stop_controller()
        shutil.copytree(self.root / "state", aside)
        self.start_controller()
        self.wait_for(lambda: len(self.nodes("idle")) == len(NODES))
        yield
        self.kill("slurmctld")
        shutil.rmtree(self.root / "state")
        shutil.copytree(aside, self.root / "state")
        self.start_controller()
        self.wait_for(lambda: len(self.nodes("idle")) == len(NODES))

    def start_node(self, node: str) -> None:
        """Start a node's daemon."""
        self._start(node, "slurmd", "-D", "-N", node)

    def kill(self, daemon: str) -> None:
        """End a daemon as a power failure would: at once, with everything that runs on that node."""
        process = self._daemons.pop(daemon)
        victims = [*self._steps(daemon), *_family(process.pid)]
        for victim in victims:
            with _already_gone():
                victim.kill()
        process.wait()
        psutil.wait_procs(victims, timeout=20)

    def wait_for(self, condition: Callable[[], object], within_s: float = STARTED_WITHIN_S) -> None:
        """Wait until the condition holds; raise TimeoutError where it does not in time, or where a daemon has died."""
        deadline_s = time.monotonic() + within_s
        while not condition():
            dead = [name for name, process in self._daemons.items() if process.poll() is not None]
            if dead or time.monotonic() > deadline_s:
                raise TimeoutError(f"dead: {dead}; logs are in {self.root / 'log'}")
            time.sleep(0.1)

    def _start(self, name: str, *command: str) -> None:
        with (self.root / "log" / f"{name}.out").open("ab") as log:
            silence = subprocess.DEVNULL
            self._daemons[name] = subprocess.Popen(
                command, env=self.env, preexec_fn=die_with_parent, stdin=silence, stdout=log, stderr=log
            )

    def _steps(self, node: str) -> Iterator[psutil.Process]:
        """Yield the processes of jobs on a node.

        SLURM's job supervisors leave the daemon's process family; each has a socket in the node's folder.
        """
        jobs = {
            path.name.removeprefix(f"{node}_").partition(".")[0]
            for path in (self.root / "spool" / node).glob(f"{node}_*")
        }
        titles = tuple(f"slurmstepd: [{job}." for job in jobs)
        for process in psutil.process_iter():
            with _already_gone():
                if titles and " ".join(process.cmdline()).startswith(titles):
                    yield from _family(process.pid)

    def _start_munge(self) -> None:
        munge = self.root / "munge"
        self.run("mungekey", "--create", f"--keyfile={munge}/key")
        files = [
            f"--key-file={munge}/key",
            f"--log-file={munge}/log",
            f"--pid-file={munge}/pid",
            f"--seed-file={munge}/seed",
        ]
        self._start("munged", "munged", "--foreground", "--num-threads=10", f"--socket={munge}/socket", *files)
        self.wait_for((munge / "socket").exists)

    def _start_database(self) -> None:
        data, own = self.root / "database", ["--no-defaults", "--user=root"]
        self.run(
            "mariadb-install-db",
            *own,
            f"--datadir={data}",
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
        )
        (data / "grants.sql").write_text(GRANTS)
        files = [
            f"--datadir={data}",
            f"--socket={data}/socket",
            f"--pid-file={data}/pid",
            f"--init-file={data}/grants.sql",
        ]
        listen = [f"--port={self._database_port}", "--bind-address=127.0.0.1", "--skip-name-resolve"]
        self._start("mariadbd", "mariadbd", *own, *files, *listen)
        self.wait_for(lambda: _listens(self._database_port))

    def start_accounting(self) -> None:
        """Start the accounting's daemon; the database keeps running."""
        self._start("slurmdbd", "slurmdbd", "-D")

    def _found_accounts(self) -> None:
        self.start_accounting()
        listed = ["sacctmgr", "--noheader", "list", "cluster"]
        self.wait_for(lambda: subprocess.run(listed, env=self.env, capture_output=True).returncode == 0)
        self.run("sacctmgr", "--immediate", "add", "cluster", "llmexp")


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _family(pid: int) -> list[psutil.Process]:
    with _already_gone():
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


@contextmanager
def _already_gone() -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        return


if __name__ == "__main__":
    with Cluster(Path(sys.argv[1]).absolute()) as cluster:
        print(f"export SLURM_CONF={cluster.env['SLURM_CONF']}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
