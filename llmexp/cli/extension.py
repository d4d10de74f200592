"""The checks of an installed package that extends llmexp: what it adds loads, plans, runs, and does what it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from llmexp import plugins
from llmexp.analysis.metric import MetricSpec
from llmexp.answers.measured import MeasuredRun
from llmexp.cli.face import plan, run
from llmexp.dtypes import NumberFormat, format_of
from llmexp.errors import ConfigError, LlmexpError
from llmexp.method import NAIVE, Atom, atom_codes, atom_of
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus
from llmexp.record.samples import StepSample, read_samples
from llmexp.record.trackers import sync_also
from llmexp.record.trackers.run_tracker import RunTracker
from llmexp.registry import get_engine, get_family, get_task, get_tracker, references
from llmexp.report.references.reference import Reference
from llmexp.tasks.base import Task
from llmexp.tasks.engine import Engine

KINDS: dict[str, type[Any]] = {
    plugins.ATOMS: Atom,
    plugins.ENGINES: Engine,
    plugins.TASKS: Task,
    plugins.FAMILIES: object,  # the registry, which alone knows that task, checks its type
    plugins.DTYPES: NumberFormat,
    plugins.METRICS: MetricSpec,
    plugins.REFERENCES: Reference,
    plugins.TRACKERS: RunTracker,
    plugins.CONF: ModuleType,
}
TRAINING = "pretrain"
# Those of llmexp that are measured by a server, a kernel or a trained model, which a package's files have to choose.
_NOT_TRIED = ("serve", "micro", "compress")
# fp32 losses near 6 of a few steps, in another order of summation.
TOLERANCE = 1e-4
SMALL = (
    *("model=tiny", "model.num_layers=1", "hardware=cpu", "precision=fp32", "data=synthetic", "data.seq_len=64"),
    *("measure=smoke", "measure.steps=4", "measure.profile=false", "measure.threads_per_rank=1"),
)
ONE, TWO = ("parallelism.dp=1", "batch.micro=2"), ("parallelism.dp=2", "batch.micro=1")


class FailedCheckError(LlmexpError):
    """What a package adds does not do what it should; the message is the reason."""


@dataclass(frozen=True)
class Check:
    """One check: what was checked, and why it failed, or ''."""

    name: str
    reason: str


def checks(package: str, outputs: Path) -> Iterator[Check]:
    """Check all that an installed package adds, one after the other; its runs go below `outputs`.

    Raises ConfigError for a package that is not installed, or that adds nothing.
    """
    points = points_of(package)
    loaded = []
    for point in points:
        check = _checked(f"{_kind(point)} {point.name} loads, and its name is free", partial(_load, point))
        yield check
        if not check.reason:
            loaded.append(point)
    yield from _files(loaded)
    trial = Trial(outputs)
    for point in loaded:
        yield from _tried(point, trial, [one.name for one in loaded if one.group == plugins.ENGINES])


def points_of(package: str) -> list[EntryPoint]:
    """Return what an installed package adds; raises ConfigError where it is not installed or adds nothing."""
    try:
        found: Distribution = distribution(package)
    except (PackageNotFoundError, ValueError):
        raise ConfigError(f"no package '{package}' is installed here: pip install it first, then name it") from None
    points = [point for point in found.entry_points if point.group.startswith("llmexp.")]
    if not points:
        raise ConfigError(f"package {package} has no entry points of {', '.join(KINDS)}: docs/extending.md shows them")
    if unknown := [point.group for point in points if point.group not in KINDS]:
        raise ConfigError(
            f"package {package}: unknown group of entry points {unknown[0]}: choices are {', '.join(KINDS)}"
        )
    # Those of the distribution itself do not know which one that is.
    return [one for group in KINDS for one in entry_points(group=group) if _is_of(one, points)]


def _is_of(point: EntryPoint, points: Sequence[EntryPoint]) -> bool:
    return any((point.name, point.value, point.group) == (one.name, one.value, one.group) for one in points)


class Trial:
    """Runs of a tiny model on this machine's CPU, each measured once."""

    def __init__(self, outputs: Path) -> None:
        self._outputs, self._done = outputs, dict[tuple[str, ...], MeasuredRun]()

    def run(self, *words: str) -> MeasuredRun:
        """Measure one run; raises FailedCheckError where it is no success."""
        if words not in self._done:
            (self._done[words],) = run(*words, "tracking=none", f"sweep.outputs={self._outputs}")
        done = self._done[words]
        if done.result is None:
            raise FailedCheckError(f"{' '.join(words)}: there is no result")
        if done.result.status is not RunStatus.SUCCESS:
            raise FailedCheckError(f"{' '.join(words)}: {done.result.status}: {done.result.reason}")
        return done

    def training(self, engine: str, ranks: Sequence[str], *words: str) -> MeasuredRun:
        """Train the tiny model by an engine."""
        return self.run(f"engine={engine}", *SMALL, *ranks, *words)


def losses(done: MeasuredRun) -> list[float]:
    """Return the mean loss of all ranks, a step, warm-up included."""
    repeat = done.folder / "repeat.0"
    by_rank = [
        [sample.loss for sample in read_samples(repeat / f"samples.{rank}.jsonl", StepSample)]
        for rank in range(done.plan.processes)
    ]
    return [math.fsum(one for one in step if one is not None) / len(step) for step in zip(*by_rank, strict=True)]


def _kind(point: EntryPoint) -> str:
    group = point.group.removeprefix("llmexp.")
    return "family" if point.group == plugins.FAMILIES else group.removesuffix("s")


def _checked(name: str, work: Callable[[], object]) -> Check:
    try:
        work()
    except (LlmexpError, OSError) as error:
        return Check(name, str(error) or type(error).__name__)
    return Check(name, "")


def _load(point: EntryPoint) -> None:
    """Load what an entry point names, as a run would."""
    found = plugins.load(point, KINDS[point.group])
    if point.group == plugins.ATOMS:
        atom_codes()  # refuses a name that is taken
    elif point.group == plugins.TASKS:
        _check_name(point, found.name)
        get_task(point.name)
    elif point.group == plugins.ENGINES:
        _check_name(point, found.name)
        get_engine(found.tasks[0], point.name)
    elif point.group == plugins.FAMILIES:
        get_family(point.name)
    elif point.group == plugins.DTYPES:
        format_of(point.name)
    elif point.group == plugins.REFERENCES:
        references()
    elif point.group == plugins.TRACKERS:
        get_tracker(point.name).check()
    elif point.group == plugins.METRICS:
        get_task(TRAINING).metrics[point.name]
    else:
        plugins.conf_packages()


def _check_name(point: EntryPoint, own: str) -> None:
    if own != point.name:
        raise FailedCheckError(f"its name is '{own}', but its entry point is '{point.name}': the two must match")


def _files(points: Sequence[EntryPoint]) -> Iterator[Check]:
    """Plan with every YAML file of the package."""
    packages = [point.value for point in points if point.group == plugins.CONF]
    tasks = [point.name for point in points if point.group == plugins.TASKS]
    for file in (file for package in packages for file in plugins.files_of(package)):
        group, _, option = file.removesuffix(".yaml").rpartition("/")
        if group:
            yield _checked(f"conf {file} composes and plans", partial(_plan_file, group, option, tasks))


def _plan_file(group: str, option: str, tasks: Sequence[str]) -> None:
    """Plan with an option, of a training or else of one of the package's own tasks."""
    word = f"{group}={option}"
    if group in ("task", "experiment"):
        plan(word)
        return
    if group == "micro":
        plan(word, "task=micro")
        return
    if group == "engine":
        plan(word, f"task={_engine(option).tasks[0]}")
        return
    try:
        plan(word)
    except ConfigError:
        if not tasks:
            raise
        plan(word, f"task={tasks[0]}")


def _engine(name: str) -> Engine[Any]:
    found: Engine[Any] = plugins.load(plugins.points(plugins.ENGINES)[name], Engine)
    return found


def _tried(point: EntryPoint, trial: Trial, engines: Sequence[str]) -> Iterator[Check]:
    """Check by runs what a package adds; files are planned only."""
    if point.group == plugins.ENGINES and TRAINING in (tasks := _engine(point.name).tasks):
        name = f"engine {point.name} on two ranks has the losses of one process"
        yield _checked(name, lambda: _check_engine(trial, point.name))
    elif point.group == plugins.ENGINES and not set(tasks) & {*_NOT_TRIED}:
        name = f"engine {point.name} measures task={tasks[0]}"
        yield _checked(name, lambda: _check_rate(trial.run(f"task={tasks[0]}", f"engine={point.name}", "hardware=cpu")))
    elif point.group == plugins.ATOMS:
        name = f"atom {point.name} changes what it says"
        yield _checked(name, lambda: _check_atom(trial, atom_of(point.name), engines))
    elif point.group == plugins.TRACKERS:
        yield _checked(f"tracker {point.name} takes a run", lambda: _check_tracker(trial, point.name))
    elif point.group == plugins.METRICS:
        yield _checked(f"metric {point.name} gives a number", lambda: _check_metric(trial, point.name))


def _check_engine(trial: Trial, name: str) -> None:
    one, two = (losses(trial.training(name, ranks)) for ranks in (ONE, TWO))
    torch = losses(trial.training("torch", ONE))
    _check_same(one[:1], torch[:1], "its first loss", "that of engine=torch, with the same weights and sequences")
    _check_same(two, one, "its losses on two ranks", "those of its own single process on the same sequences")


def _check_same(found: Sequence[float], wanted: Sequence[float], what: str, than: str) -> None:
    apart = [abs(a - b) for a, b in zip(found, wanted, strict=True)]
    if not all(one <= TOLERANCE for one in apart):
        shown = [" ".join(f"{loss:.6f}" for loss in each) for each in (found, wanted)]
        raise FailedCheckError(f"{what} ({shown[0]}) are not {than} ({shown[1]})")


def _check_rate(done: MeasuredRun) -> None:
    if done.plan.rate and not (done.rate and done.rate.mean > 0):
        raise FailedCheckError(f"its run has no {done.plan.rate}")


def _check_atom(trial: Trial, atom: Atom, engines: Sequence[str]) -> None:
    """Raise FailedCheckError where a method with the atom is planned and trained as without it."""
    base = atom.needs[0] if atom.needs else NAIVE
    method = f"{base}+{atom.code}" if atom.needs else atom.code
    words = (*SMALL, f"task={atom.tasks[0]}")
    (planned,) = plan("engine=torch", *words, f"method={method}")
    said = next(each for each in planned.plan.model_dump()["atoms"] if each["code"] == atom.code)
    if not atom.sets.items() <= said["sets"].items():
        raise FailedCheckError(f"its plan says {said['sets']}, and the atom {dict(atom.sets)}")
    for engine in ("torch", *(one for one in engines if atom.tasks[0] in _engine(one).tasks)):
        trained = [trial.training(engine, ONE, f"task={atom.tasks[0]}", f"method={each}") for each in (base, method)]
        if _trace(trained[0]) != _trace(trained[1]):
            return
    raise FailedCheckError(f"method={method} trains as method={base} does: no loss, parameter or configuration differs")


def _trace(done: MeasuredRun) -> tuple[object, ...]:
    """Return what a technique may change: losses, trained parameters, state, configuration."""
    metrics = done.result.metrics if done.result else {}
    counted = [
        found and found.mean
        for name in ("trainable_parameters", "training_state_bytes")
        if (found := metrics.get(name))
    ]
    return (losses(done), counted, done.plan.engine_config)


def _check_metric(trial: Trial, name: str) -> None:
    result = trial.training("torch", TWO).result
    found = result.metrics.get(name) if result else None
    if found is None:
        raise FailedCheckError("it is None for a run of the tiny model with one step of warm-up and four measured")
    if not math.isfinite(found.mean):
        raise FailedCheckError(f"it is {found.mean}")


def _check_tracker(trial: Trial, name: str) -> None:
    for reason in sync_also([RunFolder(trial.training("torch", TWO).folder)], name, "llmexp").unreadable:
        raise FailedCheckError(reason)
