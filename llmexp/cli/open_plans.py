"""Plans of one command line with further words, a few milliseconds each: Hydra composes only for choices of groups."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import yaml
from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf

from llmexp.cli.check import validate
from llmexp.cli.compose import Composer, groups_of
from llmexp.cli.jobs import choices_of, words_of
from llmexp.cli.overrides import accept, as_typed
from llmexp.cli.words import sweep_of
from llmexp.errors import ConfigError
from llmexp.record.plan import RunPlan
from llmexp.tasks.resolve import resolve


def open_plans(args: Namespace) -> Iterator[OpenPlans]:
    """Yield the open plans of each run that the overrides describe; raises ConfigError."""
    with sweep_of(args) as (loader, master):
        words: list[str] = OmegaConf.to_container(master.hydra.overrides.task)  # type: ignore[assignment]
        composer = Composer(loader, master, words)
        for overrides in choices_of(loader, master):
            yield OpenPlans(loader, master, composer, overrides)


class OpenPlans:
    """The plans of a run's overrides with words besides."""

    def __init__(self, loader: ConfigLoader, master: DictConfig, composer: Composer, overrides: Sequence[str]) -> None:
        self._loader, self._composer, self._overrides = loader, composer, list(overrides)
        self._typed = words_of(loader, master.hydra, overrides)
        self._containers: dict[tuple[str, ...], dict[str, Any]] = {}
        self._plans: dict[tuple[str, ...], RunPlan | None] = {}

    @property
    def typed(self) -> RunPlan:
        """The plan of the command line alone; raises ConfigError where it has none."""
        return resolve(validate(self._container(())), self._typed)

    @property
    def fixed(self) -> dict[str, str]:
        """The values that were typed, by key or group."""
        pairs = (word.partition("=") for word in as_typed(self._overrides))
        return {key: value for key, _, value in pairs}

    def plan_with(self, words: Mapping[str, str]) -> RunPlan | None:
        """Return the plan with these words besides, or None where they cannot be."""
        key = tuple(f"{name}={value}" for name, value in sorted(words.items()))
        if key not in self._plans:
            self._plans[key] = self._planned(words)
        return self._plans[key]

    def _planned(self, words: Mapping[str, str]) -> RunPlan | None:
        groups = groups_of(self._loader)
        chosen = tuple(f"{key}={value}" for key, value in words.items() if key in groups)
        container = self._container(chosen)
        for key, value in words.items():
            if key not in groups:
                _set(container, key, value)
        replaced = {f"{key}=" for key in words}
        typed = [word for word in self._typed if not word.startswith(tuple(replaced))]
        try:
            return resolve(validate(container), [*typed, *(f"{key}={value}" for key, value in words.items())])
        except ConfigError:
            return None

    def _container(self, chosen: tuple[str, ...]) -> dict[str, Any]:
        """Return what these options of groups give, put together where each changes nothing but its own section."""
        if chosen not in self._containers:
            sections = [self._section(word) for word in chosen] if len(chosen) > 1 else []
            self._containers[chosen] = (
                self._container(()) | {key: value for section in sections for key, value in (section or {}).items()}
                if all(sections) and sections
                else self._composer.container([*self._overrides, *accept(self._loader, chosen)])
            )
        return deepcopy(self._containers[chosen])

    def _section(self, word: str) -> dict[str, Any] | None:
        """Return what an option changes; None where that is more than the section of its group."""
        base, changed = self._container(()), self._container((word,))
        own = word.partition("=")[0]
        return {own: changed[own]} if {**base, own: changed[own]} == changed else None


def _set(container: dict[str, Any], key: str, value: str) -> None:
    *sections, name = key.split(".")
    for section in sections:
        container = container.setdefault(section, {})
    container[name] = yaml.safe_load(value)
