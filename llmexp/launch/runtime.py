"""The environment in which a plan's ranks run on this node: what is installed, and how a command starts there."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import cache
from hashlib import sha256
from importlib.metadata import EntryPoint, packages_distributions
from pathlib import Path

from llmexp import plugins
from llmexp.launch.code import cache_folder, snapshot
from llmexp.launch.command_prefix import Needs, ending, interpreter, wrap
from llmexp.launch.forked import ForkedAgent
from llmexp.launch.server_address import API_KEY
from llmexp.launch.spawn import Agent
from llmexp.record.environment import DISTRIBUTIONS, VARIABLES
from llmexp.record.installed import Installed, answer, look, question
from llmexp.record.plan import RunPlan
from llmexp.registry import get_engine
from llmexp.schema import RunConfig

# The first use of an image may have to fetch it.
ASK_TIMEOUT_S = 1800.0
# Every rank reads its plan with pydantic and watches its peers with psutil.
RANK_MODULES = ("pydantic", "psutil")
# Variables that ranks in a container need as those outside do, and that no configuration may hold.
SECRETS = ("HF_TOKEN", API_KEY)
# The name of the container in which this process asks what is installed, one question after the other.
_ASKING = f"llmexp-{uuid.uuid4().hex[:12]}"


class Runtime:
    """The place where the ranks of a plan run; `python` is the word that starts an interpreter there."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan, self._config = plan, plan.config.runtime
        self._engine = get_engine(plan.config.task.name, plan.config.engine.name)
        self.python = interpreter(self._config)

    @property
    def installed(self) -> Installed:
        """The distributions that results name and the modules that ranks import, as that interpreter has them.

        The engine's distributions are those of its server, where ranks start one; where both count, the server's have
        the engine's name before theirs.
        """
        config, engine = self._plan.config, self._engine
        distributions = dict.fromkeys((*DISTRIBUTIONS, *engine.distributions, *contributors(self._plan)))
        found = self._asked(self.python, distributions, (*engine.needed_modules(config), *RANK_MODULES))
        software = engine.server_software(config)
        if not software:
            return found
        if software.beside_ranks:
            theirs = self.server.distributions.items()
            beside = {f"{engine.name}: {name}": version for name, version in theirs}
            return replace(found, distributions=found.distributions | beside)
        ranks_own = {name: version for name, version in found.distributions.items() if name not in engine.distributions}
        return replace(found, distributions=ranks_own | self.server.distributions)

    @property
    def server(self) -> Installed:
        """The engine's distributions and the server's modules, as the server's interpreter has them."""
        software = self._engine.server_software(self._plan.config)
        if not software:
            return Installed()
        return self._asked(software.python or self.python, self._engine.distributions, software.modules)

    def _asked(self, python: str, distributions: Iterable[str], modules: tuple[str, ...]) -> Installed:
        """Ask an interpreter there; one other than llmexp's own is asked once per process."""
        if self._config.plain and python == self.python:
            return look(distributions, modules)
        asking, env = self._around(
            [python, *question(distributions, modules)], {**os.environ, **self._config.environment}, _ASKING, ()
        )
        return _ask(tuple(asking), tuple(env.items()))

    def start(self, argv: Sequence[str], log: Path, env: Mapping[str, str]) -> Agent:
        """Start a command there, which writes into its log's folder, the folder above and llmexp's cache."""
        if self._plan.config.engine.launcher == "fork":
            return ForkedAgent(argv, env, log)
        if self._config.plain:
            return Agent(argv, env, log)
        name, writes = _container(log.absolute()), (str(log.parent.parent.absolute()), str(cache_folder()))
        return Agent(*self._around(argv, env, name, writes), log, ending(self._config, name))

    def _around(
        self, argv: Sequence[str], env: Mapping[str, str], name: str, writes: tuple[str, ...]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command that enters the runtime first, and its environment; a container is called `name`."""
        env = self._environment(env)
        told = [
            key
            for key, value in env.items()
            if os.environ.get(key) != value or any(fnmatch(key, pattern) for pattern in (*VARIABLES, *SECRETS))
        ]
        reads = (str(Path.cwd()), str(snapshot()), *_inputs(self._plan.config))
        return wrap(
            argv, self._config, Needs(writes, reads, tuple(told), self._plan.config.hardware.device == "cuda", name)
        ), env

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Add the variables by which other interpreters import this llmexp, and no other modules of the user's."""
        paths = (str(snapshot()), env.get("PYTHONPATH", ""))
        extra = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}
        if self._config.container == "docker":
            # The user's id may have neither a name nor a home in the image, and torch's caches ask for both.
            extra |= {"HOME": str(cache_folder()), "USER": "llmexp"}
        elif not self._config.container and os.path.isabs(self.python):
            extra["PATH"] = os.pathsep.join([os.path.dirname(self.python), env.get("PATH", os.defpath)])
        return {**env, **extra}


def _container(log: Path) -> str:
    """Return the name of the container that writes this log.

    It is the same for all repeats of a run, so that the next start finds what a killed driver and supervisor left.
    """
    folder = log.parent.parent if log.parent.name.startswith("repeat.") else log.parent
    return f"llmexp-{sha256(bytes(folder / log.name)).hexdigest()[:12]}"


def contributors(plan: RunPlan) -> list[str]:
    """Return other packages' distributions whose code the ranks run.

    They provide the method's atoms, the engine, the optimizer's class and the model's class.
    """
    named = {plugins.distribution(point) for point in _points(plan)}
    packages = {target.partition(".")[0] for target in plan.config.targets}
    known = _distributions(tuple(sys.path)) if packages else {}
    return sorted(named.union(*(known.get(package, ()) for package in packages)))


def contributing_modules(plan: RunPlan) -> set[str]:
    """Return the importable top-level names of the same code."""
    return {point.module.partition(".")[0] for point in _points(plan)} | {
        target.partition(".")[0] for target in plan.config.targets
    }


def _points(plan: RunPlan) -> list[EntryPoint]:
    config = plan.config
    used = {plugins.ATOMS: plan.atom_codes, plugins.ENGINES: (config.engine.name,), plugins.TASKS: (config.task.name,)}
    return [point for group, names in used.items() for name, point in plugins.points(group).items() if name in names]


@cache
def _distributions(path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return the distributions of each package on `path`, which takes a tenth of a second to find out."""
    return packages_distributions()


@cache
def _ask(argv: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> Installed:
    try:
        done = subprocess.run(
            argv, env=dict(env), capture_output=True, text=True, timeout=ASK_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Installed(error=str(error))
    return answer(done.stdout) or Installed(error=_why(done))


def _why(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line that mentions an error; the very last line may only be a shell's comment on it."""
    said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
    return next((line for line in reversed(said) if "error" in line.lower()), said[-1])


def _inputs(config: RunConfig) -> tuple[str, ...]:
    """Return the existing folders and files that the configuration names; a container must show them to the ranks."""
    return tuple(str(Path(name).expanduser().absolute()) for name in config.inputs if Path(name).expanduser().exists())
