"""A search as its command line says it: checked, and planned at every choice and at both ends of each interval."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, get_args

from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from llmexp.cli.compose import Composer
from llmexp.cli.explain import explain
from llmexp.cli.jobs import Job, check_that_all_counts, plan_of, words_of
from llmexp.cli.overrides import as_typed
from llmexp.cli.search_space import SearchWords, search_words
from llmexp.errors import ConfigError, DegreesError
from llmexp.record.naming import distinguishing_overrides
from llmexp.record.plan import RunPlan
from llmexp.registry import get_task
from llmexp.sweep.search.searching import SearchSetup
from llmexp.sweep.search.space import SearchPoint, probes_of, short_words
from llmexp.sweep.search.trial import Direction, SearchGoal, SearchOptions

SWEEPER = "search"
# A sweep that nobody named.
_UNNAMED = "main"
_NOT_SEARCHED = ("sweep.", "tracking", "budget", "rerun", "force", "runtime")
_LOCAL = "local"


def search_setup(loader: ConfigLoader, master: DictConfig, sought: Mapping[str, Any]) -> SearchSetup:
    """Return what a composed sweep searches; `sought` are the sweeper's own keys. Raises ConfigError."""
    goal, options = _goal(sought), _options(sought)
    options.check(goal)
    _check_words(master)
    words = search_words(loader, OmegaConf.to_container(master.hydra.overrides.task))  # type: ignore[arg-type]
    planner = _Planner(loader, master, words)
    plans = planner.probes()
    first = plans[0].config
    goal.check(list(get_task(first.task.name).metrics), first.task.name)
    _check_runs(plans[0])
    return SearchSetup(goal, options, words.space, planner.asked(goal), plans[0], planner.plan)


class _Planner:
    """Plans the run of a point, in a sweep that the words name where nobody else did."""

    def __init__(self, loader: ConfigLoader, master: DictConfig, words: SearchWords) -> None:
        self._loader, self._master, self._words = loader, master, words
        self._composer = Composer(loader, master, OmegaConf.to_container(master.hydra.overrides.task))  # type: ignore[arg-type]
        self._own_name: list[str] = []

    def plan(self, point: SearchPoint) -> RunPlan:
        """Plan the run of a point; raises ConfigError."""
        overrides = [*self._words.of(point), *self._own_name]
        try:
            plan = plan_of(self._composer.container(overrides), words_of(self._loader, self._master.hydra, overrides))
        except (HydraException, OmegaConfBaseException) as error:
            raise explain(error) from None
        told = distinguishing_overrides([f"{key}={value}" for key, value in point.items()], plan.name_fields)
        return plan.model_copy(update={"label": " ".join(told)})

    def probes(self) -> list[RunPlan]:
        """Plan every choice and the ends of each interval; raises ConfigError for the first that cannot be.

        Degrees that cannot be are left to their trials, as in a sweep.
        """
        points = probes_of(self._words.space)
        if self._composer.container(self._words.of(points[0]))["sweep"]["name"] == _UNNAMED:
            self._own_name = [f"++sweep.name=search_{sha256(repr(self._words).encode()).hexdigest()[:8]}"]
        found: dict[str, tuple[SearchPoint, RunPlan]] = {}
        for point in points:
            try:
                plan = self.plan(point)
            except DegreesError:
                continue
            except ConfigError as error:
                raise ConfigError(f"trial {short_words(point)}: {error}") from error
            if plan.id in found:
                other = short_words(dict(point.items() - found[plan.id][0].items()))
                raise ConfigError(f"{other} changes nothing that is measured: leave it out")
            found[plan.id] = point, plan
        plans = [plan for _, plan in found.values()]
        if not plans:
            self.plan(points[0])
        check_that_all_counts([Job((), plan) for plan in plans])
        return plans

    def asked(self, goal: SearchGoal) -> dict[str, Any]:
        """Return what tells this search from others in its folder."""
        shared = [word for word in as_typed(self._words.fixed) if not word.startswith(_NOT_SEARCHED)]
        space = {dimension.key: repr(dimension) for dimension in self._words.space}
        return {"goal": f"{goal.direction} {goal.metric}", "space": space, "words": sorted(shared)}


def _goal(sought: Mapping[str, Any]) -> SearchGoal:
    given = {direction: sought[direction] for direction in get_args(Direction) if sought.get(direction)}
    if len(given) != 1:
        several = "one of minimize and maximize, not both" if given else "what is sought"
        raise ConfigError(f"name {several}: minimize=loss or maximize=tokens_per_s (llmexp search: --minimize loss)")
    [(direction, metric)] = given.items()
    return SearchGoal(str(metric), direction)


def _options(sought: Mapping[str, Any]) -> SearchOptions:
    for name in ("trials", "seed"):
        if not isinstance(sought[name], int) or isinstance(sought[name], bool):
            raise ConfigError(f"{name} is '{sought[name]}': write a whole number")
    return SearchOptions(sought["trials"], sought["sampler"], sought["pruner"], sought["seed"])


def _check_words(master: DictConfig) -> None:
    if OmegaConf.select(master, "hydra.sweeper.cells"):
        raise ConfigError("an experiment that is a table of runs cannot be searched: name the words of one run")
    launcher = master.hydra.runtime.choices.get("hydra/launcher")
    if launcher != _LOCAL:
        raise ConfigError(
            f"hydra/launcher={launcher} does not go with a search, which measures where it runs: start the same "
            "command on several machines that share the folder"
        )
    if OmegaConf.select(master, "sweep.control"):
        raise ConfigError("sweep.control does not go with a search: leave it out")


def _check_runs(plan: RunPlan) -> None:
    """Raise ConfigError for what a search cannot do with its runs, all of which are like this one."""
    config = plan.config
    if config.budget.limits:
        raise ConfigError("budget does not go with a search, which --trials bounds: leave it out")
    if config.is_interleaved:
        raise ConfigError("measure.order=interleaved does not go with a search, which takes run by run: leave it out")
    if config.hardware.nodes > 1:
        raise ConfigError(f"hardware.nodes={config.hardware.nodes}: a search measures runs of one machine")
