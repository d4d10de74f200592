"""Hydra's launchers, which decide where plans are measured.

llmexp's own launchers give a runner of planned runs; a launcher of another package calls the task that measures them.
"""

from __future__ import annotations

import sys
import traceback
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from llmexp.cli.compose import container_of
from llmexp.cli.jobs import Job, plan_of, words_of
from llmexp.cli.resolvers import register
from llmexp.errors import LlmexpError
from llmexp.record.plan import RunPlan
from llmexp.record.writing import now
from llmexp.sweep.interleaved import check_one_driver
from llmexp.sweep.levels import levels
from llmexp.sweep.measuring import folder_of, joined, measure
from llmexp.sweep.runner import Runner
from llmexp.sweep.search.searching import Searched
from llmexp.sweep.share import settle

# A job returns this if another driver measures its run.
HELD = "held by another driver"


class PlanLauncher(Launcher):
    """A launcher of llmexp's own, which is given plans.

    Sweepers of other packages give it overrides, which it turns into plans.
    """

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what is needed to make plans."""
        self._loader, self._config, self._began = hydra_context.config_loader, config, now()

    @abstractmethod
    def runner(self, jobs: Sequence[Job]) -> Runner:
        """Return the runner that measures the plans of these jobs.

        Raises ConfigError, before anything starts, where it cannot.
        """

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Plan the overrides that another package's sweeper gives, and measure these plans."""
        jobs = [self._job(overrides) for overrides in job_overrides]
        well = self.runner(jobs).run([job.plan for job in jobs])
        return [JobReturn(status=JobStatus.COMPLETED if each else JobStatus.FAILED) for each in well or ()]

    def _job(self, overrides: Sequence[str]) -> Job:
        config = self._loader.load_sweep_config(self._config, list(overrides))
        return Job(tuple(overrides), plan_of(container_of(config), words_of(self._loader, config.hydra, overrides)))


class PlannedTask:
    """The task that launchers of other packages call for each job, here or on another machine; it measures one run."""

    def __init__(self) -> None:
        """Start without plans.

        `plans` holds those of the launched jobs by number; if it is empty, each job is planned where it is called.
        `swept` are those of the whole sweep when it has ended, `searched` is what came of it where it was a search.
        """
        self.plans: Sequence[RunPlan] = ()
        self.swept: Sequence[RunPlan] = ()
        self.searched: Searched | None = None
        self._began = now()

    def __call__(self, config: DictConfig) -> str | None:
        """Measure the run of this job, or keep its result; returns HELD where another driver measures it."""
        register()  # a launcher may have brought this to a process of its own
        try:
            plan = self._plan(config)
            return None if joined(plan) or measure(plan, folder_of(plan), self._began) else HELD
        except LlmexpError as error:
            print(f"llmexp: {error}", file=sys.stderr)
            raise
        except Exception:
            # This is the sweep's edge: the error is printed at once, because Hydra keeps it and starts the next run.
            traceback.print_exc()
            raise

    def _plan(self, config: DictConfig) -> RunPlan:
        hydra = HydraConfig.get()
        if self.plans:
            return self.plans[hydra.job.num]
        return plan_of(
            container_of(config), words_of(GlobalHydra.instance().config_loader(), hydra, hydra.overrides.task)
        )


class RunsByLauncher:
    """A runner that lets a launcher of another package measure plans, which travel with the task that it calls."""

    measures_here = False

    def __init__(self, launcher: Launcher, task: PlannedTask, overrides: Mapping[str, Sequence[str]]) -> None:
        """Keep the `overrides` of each plan, by its id, which the launcher composes for its own configuration."""
        self._launcher, self._task, self._overrides = launcher, task, overrides

    def run(self, plans: Sequence[RunPlan]) -> Sequence[bool]:
        """Measure the plans and return for each whether it went well."""

        well: dict[str, bool] = {}
        for level in levels(plans):
            well |= zip((plan.id for plan in level), self._settled(level), strict=True)
        return [well[plan.id] for plan in plans]

    def _settled(self, plans: Sequence[RunPlan]) -> Sequence[bool]:
        def attempt(places: Sequence[int]) -> Sequence[bool | None]:
            self._task.plans = [plans[place] for place in places]
            words = [self._overrides[plan.id] for plan in self._task.plans]
            return [_went_well(returned) for returned in self._launcher.launch(words, initial_job_idx=0)]

        return settle([folder_of(plan) for plan in plans], attempt)


def runner_of(launcher: Launcher, task: PlannedTask, jobs: Sequence[Job]) -> Runner:
    """Return the runner that measures these jobs where the launcher says; raises ConfigError."""
    if isinstance(launcher, PlanLauncher):
        return launcher.runner(jobs)
    check_one_driver([job.plan for job in jobs], type(launcher).__name__)
    return RunsByLauncher(launcher, task, {job.plan.id: job.overrides for job in jobs})


def _went_well(returned: JobReturn) -> bool | None:
    if returned.status is not JobStatus.COMPLETED:
        return False
    return None if returned.return_value == HELD else True
