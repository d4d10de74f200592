"""The jobs of one command line.

Sweeps and cells are multiplied out, and every job is composed, checked and planned before any runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.conf import HydraConf
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from llmexp.cli.check import validate
from llmexp.cli.compose import Composer
from llmexp.cli.counting import counted
from llmexp.cli.explain import explain
from llmexp.cli.hydra_private import multiplied
from llmexp.cli.named_runs import NAME, NamedRuns, check_names, in_order
from llmexp.cli.overrides import accept, as_typed
from llmexp.cli.typed import typed
from llmexp.errors import ConfigError, DegreesError
from llmexp.method import NAIVE
from llmexp.record.naming import apart, distinguishing_overrides
from llmexp.record.plan import RunPlan
from llmexp.registry import get_task
from llmexp.tasks.resolve import resolve


@dataclass(frozen=True)
class Job:
    """A job is one run of a sweep: its Hydra overrides, and the plan that they give."""

    overrides: tuple[str, ...]
    plan: RunPlan


def plan_jobs(loader: ConfigLoader, master: DictConfig) -> list[Job]:
    """Plan every run of a composed sweep once and start none; raises ConfigError for the first that cannot run.

    Runs whose degrees of parallelism cannot be are named and left out where others can be.
    """
    jobs: dict[str, Job] = {}
    impossible: list[ConfigError] = []
    choices = choices_of(loader, master)
    for overrides, plan in answers(loader, master, choices):
        if isinstance(plan, ConfigError):
            said = ConfigError(f"{_difference(overrides, choices)}{plan}")
            if not isinstance(plan, DegreesError):
                raise said
            impossible.append(said)
            continue
        jobs.setdefault(plan.id, Job(tuple(overrides), plan))
        _check_one_sweep(next(iter(jobs.values())).plan, plan)
    if not jobs:
        raise impossible[0]
    for reason in impossible:
        print(f"llmexp: left out: {reason}", file=sys.stderr)
    check_that_all_counts(list(jobs.values()))
    plans = in_order([job.plan for job in jobs.values()])
    found = told_apart([Job(jobs[plan.id].overrides, plan) for plan in plans])
    check_names([job.plan for job in found])
    return found


def choices_of(loader: ConfigLoader, master: DictConfig) -> list[list[str]]:
    """Return the overrides of each run of a composed sweep; its control comes last."""
    cells: list[dict[str, Any]] = OmegaConf.to_container(
        OmegaConf.select(master, "hydra.sweeper.cells") or OmegaConf.create([])
    )  # type: ignore[assignment]
    choices = expand(loader, _words(master), cells)
    if not OmegaConf.select(master, "sweep.control"):
        return choices
    twice = next((choice for choice in choices if f"method={NAIVE}" in as_typed(choice)), choices[0])
    unnamed = [word for word, plain in zip(twice, as_typed(twice), strict=True) if not plain.startswith(f"{NAME}=")]
    return [*choices, [*unnamed, "control=true"]]


def answers(
    loader: ConfigLoader, master: DictConfig, choices: Sequence[Sequence[str]]
) -> Iterator[tuple[Sequence[str], RunPlan | ConfigError]]:
    """Yield for each run its overrides with its plan, or with the error that says why it has none."""
    composer = Composer(loader, master, _words(master))

    def compose(place: int) -> dict[str, Any]:
        try:
            return composer.container(choices[place])
        except (HydraException, OmegaConfBaseException) as error:
            raise explain(error) from None

    def plan(container: Mapping[str, Any], overrides: Sequence[str]) -> RunPlan:
        return plan_of(container, words_of(loader, master.hydra, overrides))

    runs = NamedRuns(choices, compose, plan)
    for place, overrides in enumerate(counted("planning run", choices)):
        try:
            yield overrides, runs.plan(place)
        except ConfigError as error:
            yield overrides, error


def _words(master: DictConfig) -> list[str]:
    words: list[str] = OmegaConf.to_container(master.hydra.overrides.task)  # type: ignore[assignment]
    return words


def plan_of(container: Mapping[str, Any], words: Sequence[str]) -> RunPlan:
    """Check and plan one composed configuration, which these words give; raises ConfigError."""
    return resolve(validate(container), words)


def words_of(loader: ConfigLoader, hydra: HydraConf, overrides: Sequence[str]) -> list[str]:
    """Return what a person types for this job alone: its overrides, and the search path of its files.

    Launchers and settings of the sweep are left out.
    """
    searched = [override for override in hydra.overrides.hydra if override.startswith("hydra.searchpath=")]
    words = typed(loader, [word for word in as_typed(overrides) if not word.startswith(("budget.", "sweep.control"))])
    return searched + (words or [f"method={NAIVE}"])  # alone, `llmexp` starts nothing


def expand(loader: ConfigLoader, words: Sequence[str], cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Multiply out the command line's sweeps, and each of their jobs with the cells that it selects.

    A key of the job replaces that key in the cells.
    """
    parser = OverridesParser.create(config_loader=loader)
    parsed = [
        parser.parse_overrides(accept(loader, [f"{key}={_sweep(value)}" for key, value in cell.items()]))
        for cell in cells or [{}]
    ]
    found: list[list[str]] = []
    typed_words = parser.parse_overrides(list(words))
    _check_that_values_can_be_listed(loader, typed_words)
    for job in multiplied(typed_words):
        own = {key: value for key, _, value in (word.partition("=") for word in as_typed(job))}
        for cell in select(parsed, own):
            found += [
                job + rest for rest in multiplied([override for override in cell if override.key_or_group not in own])
            ]
    return [list(job) for job in dict.fromkeys(tuple(job) for job in found)]


def _check_that_values_can_be_listed(loader: ConfigLoader, words: Sequence[Override]) -> None:
    for word in words:
        if word.value_type is ValueType.GLOB_CHOICE_SWEEP:
            _check_that_some_match(loader, word)
        if word.is_interval_sweep():
            line = as_typed([str(word.input_line)])[0]
            raise ConfigError(
                f"{line}: a sweep cannot list the values of an interval: write some with commas, or use llmexp search"
            )


def _check_that_some_match(loader: ConfigLoader, word: Override) -> None:
    typed_word, options = as_typed([str(word.input_line)])[0], loader.get_group_options(word.key_or_group)
    if not options:
        raise ConfigError(
            f"{typed_word}: glob chooses from the options of a group, and {word.key_or_group} is no group: write "
            "values with commas"
        )
    if not list(word.sweep_string_iterator()):
        raise ConfigError(f"{typed_word}: no option matches: choices are {', '.join(options)}")


def select(cells: list[list[Override]], job: Mapping[str, str]) -> list[list[Override]]:
    """Return the cells that hold a job's values, as model=13b selects half of a table.

    A value that no cell holds, such as another model, selects all cells.
    """
    for key, value in job.items():
        spelling = _spelling(key, value)
        held = [
            {_spelling(key, v) for override in cell if override.key_or_group == key for v in _values(override)}
            for cell in cells
        ]
        if any(spelling in values for values in held):
            cells = [cell for cell, values in zip(cells, held, strict=True) if not values or spelling in values]
    return cells


def _values(override: Override) -> list[str]:
    return (
        list(override.sweep_string_iterator())
        if override.is_sweep_override()
        else [override.get_value_element_as_str()]
    )


def _spelling(key: str, value: str) -> str:
    """Return a value in the form in which it is compared; the atoms of a method are sorted."""
    return "+".join(sorted(value.upper().split("+"))) if key == "method" else value


def _sweep(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _difference(overrides: Sequence[str], choices: Sequence[Sequence[str]]) -> str:
    """Return what tells a job from the others, as the start of its error; empty for a single job."""
    shared = set(choices[0]).intersection(*choices)
    own = as_typed([override for override in overrides if override not in shared])
    return f"run {' '.join(own)}: " if own else ""


def told_apart(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with labels in their plans that tell them apart."""
    told = apart([distinguishing_overrides(job.plan.overrides, job.plan.name_fields) for job in jobs])
    return [
        Job(job.overrides, job.plan.model_copy(update={"label": words})) for job, words in zip(jobs, told, strict=True)
    ]


def check_that_all_counts(jobs: Sequence[Job]) -> None:
    """Raise ConfigError for a key that changes nothing in any run of the sweep.

    Otherwise the runs would not be those that the user asked for.
    """
    idle = [get_task(job.plan.config.task.name).unused_keys(job.plan) for job in jobs]
    everywhere = [key for key in (idle[0] if idle else ()) if all(key in each for each in idle)]
    if everywhere:
        raise ConfigError(f"{everywhere[0]} does nothing here: {idle[0][everywhere[0]].rstrip('?')}; leave it out")


def _check_one_sweep(first: RunPlan, plan: RunPlan) -> None:
    if _of_sweep(plan) != _of_sweep(first):
        raise ConfigError("sweep.name, sweep.outputs, tracking and budget apply to a whole sweep: give each one value")


def _of_sweep(plan: RunPlan) -> tuple[Any, ...]:
    """Return what all runs of a sweep share: all of its settings but a run's own name."""
    config = plan.config
    return config.sweep.model_copy(update={"run_name": None}), config.tracking, config.budget
