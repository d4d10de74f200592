"""Runs of a sweep that start from the model of another one: model=@NAME is the run with sweep.run_name=NAME.

Everything is planned before anything starts. The folder of the model is not there then: the plan of the run that makes
it says where it will lie and what its config.json will say, and its id takes the place of the weights in the id of the
run that starts from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llmexp.cli.overrides import as_typed
from llmexp.errors import ConfigError, unknown
from llmexp.record.plan import RunPlan
from llmexp.registry import get_task
from llmexp.schema import MadeModel
from llmexp.schema.model import RUN

Container = dict[str, Any]
# Composes the container of one choice, by its place; plans it, with the words that repeat its run.
Compose = Callable[[int], Container]
Plan = Callable[[Container, Sequence[str]], RunPlan]
NAME = "sweep.run_name"


class NamedRuns:
    """The plans of a sweep's choices, each planned once, and after the run that it starts from."""

    def __init__(self, choices: Sequence[Sequence[str]], compose: Compose, plan: Plan) -> None:
        self._choices, self._compose, self._plan = choices, compose, plan
        self._planned: dict[int, RunPlan | ConfigError] = {}
        self._begun: list[str] = []
        self._places: dict[str, list[int]] | None = None

    def plan(self, place: int) -> RunPlan:
        """Return the plan of a choice; raises ConfigError, also where the run that it starts from cannot be planned."""
        if place not in self._planned:
            try:
                self._planned[place] = self._planned_now(place)
            except ConfigError as error:
                self._planned[place] = error
        found = self._planned[place]
        if isinstance(found, ConfigError):
            raise found
        return found

    def _planned_now(self, place: int) -> RunPlan:
        container, overrides = self._compose(place), self._choices[place]
        name = _named(container)
        if name is None:
            return self._plan(container, overrides)
        maker = self._maker(name)
        made = _made(name, maker)
        path = str(maker.folder / made.folder)
        words = [word.replace(f"{RUN}{name}", path) for word in overrides]
        return self._plan(_started_from(container, path, made), words)

    def _maker(self, name: str) -> RunPlan:
        """Return the plan of the run with this name."""
        places = self._by_name()
        if name not in places:
            raise _unknown(name, places)
        if len(places[name]) > 1:
            raise _ambiguous(name, [" ".join(as_typed(self._choices[place])) for place in places[name]])
        if name in self._begun:
            way = " from ".join(f"{RUN}{each}" for each in [*self._begun[self._begun.index(name) :], name])
            raise ConfigError(f"model={RUN}{name}: runs would start from each other: {way}")
        self._begun.append(name)
        try:
            return self.plan(places[name][0])
        except ConfigError as error:
            said = str(error)
            chained = said.startswith(f"model={RUN}")
            raise type(error)(said if chained else f"model={RUN}{name} cannot be planned: {said}") from None
        finally:
            self._begun.pop()

    def _by_name(self) -> Mapping[str, list[int]]:
        """Return the places of the runs with a name."""
        if self._places is None:
            self._places = {}
            for place in range(len(self._choices)):
                if name := self._compose(place).get("sweep", {}).get("run_name"):
                    self._places.setdefault(str(name), []).append(place)
        return self._places


def in_order(plans: Sequence[RunPlan]) -> list[RunPlan]:
    """Return the plans of a sweep so that none comes before the run that it starts from; others keep their places.

    The plan of a run from which others start says so.
    """
    by_id = {plan.id: plan for plan in plans}
    awaited = {made.run for plan in plans if (made := made_for(plan))}
    found: dict[str, RunPlan] = {}

    def add(plan: RunPlan) -> None:
        made = made_for(plan)
        if made and made.run not in found:
            add(by_id[made.run])
        found.setdefault(plan.id, plan.model_copy(update={"awaited": plan.id in awaited}))

    for plan in plans:
        add(plan)
    return list(found.values())


def made_for(plan: RunPlan) -> MadeModel | None:
    """Return what a run starts from that another one makes, or None."""
    model = plan.config.starts_from
    return model.made if model else None


def check_names(plans: Sequence[RunPlan]) -> None:
    """Raise ConfigError for a name of several runs, and where runs would start from one that has not ended."""
    named = Counter(plan.config.sweep.run_name for plan in plans if plan.config.sweep.run_name)
    if several := next((name for name, count in named.items() if count > 1), None):
        raise _ambiguous(several, [plan.name for plan in plans if plan.config.sweep.run_name == several])
    for plan in plans:
        if plan.awaited and plan.config.is_interleaved:
            name = f"{RUN}{plan.config.sweep.run_name}"
            raise ConfigError(
                f"measure.order=interleaved: {name} has to end before others start from it: set "
                f"measure.order=run_by_run for {name}"
            )


def _ambiguous(name: str, runs: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"{NAME}={name} names {len(runs)} runs of the sweep ({'; '.join(runs[:2])}): give each a name of its own"
    )


def _made(name: str, maker: RunPlan) -> MadeModel:
    made = get_task(maker.config.task.name).made_model(maker)
    if made:
        return made
    advice = ": set task.save_model=true there" if "save_model" in type(maker.config.task).model_fields else ""
    raise ConfigError(f"model={RUN}{name}: {maker.name} ({maker.config.task.name}) saves no model{advice}")


def _named(container: Mapping[str, Any]) -> str | None:
    """Return the name of the run that a composed run starts from, or None."""
    model = container.get("model")
    path = model.get("path") if isinstance(model, Mapping) else None
    return path.removeprefix(RUN) if isinstance(path, str) and path.startswith(RUN) else None


def _started_from(container: Container, path: str, made: MadeModel) -> Container:
    """Return the container with the folder that the model will have in the place of the name of its run."""
    model = container["model"]
    place = model["path"]
    found = container | {"model": model | {"path": path, "made": made.model_dump()}}
    for section in ("data", "text"):
        read = container.get(section)
        if read and read.get("tokenizer") == place:
            found[section] = read | {"tokenizer": path}
    return found


def _unknown(name: str, names: Mapping[str, Any]) -> ConfigError:
    if not names:
        return ConfigError(
            f"model={RUN}{name}: no run of the sweep has a name: set {NAME}={name} for one that saves its model"
        )
    return unknown("run of the sweep", name, list(names))
