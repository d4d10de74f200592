"""Runs a sweep as jobs of a SLURM cluster: hydra/launcher=slurm.

Runs are planned where they are submitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from llmexp.cli.jobs import Job
from llmexp.cli.launchers import PlanLauncher
from llmexp.errors import ConfigError
from llmexp.slurm.options import DEFAULTS, read_options
from llmexp.sweep.interleaved import check_one_driver
from llmexp.sweep.runner import Runner

# These files of conf/hardware describe the submitting machine.
DETECTING = ("auto", "gpu")
_NODE = {"_target_": "hydra_plugins.llmexp_slurm.launcher.SlurmLauncher", **DEFAULTS}
ConfigStore.instance().store(group="hydra/launcher", name="slurm", node=_NODE, provider="llmexp")


class SlurmLauncher(PlanLauncher):
    """A launcher that submits plans.

    Nothing is composed again on a node, so that a job runs what was planned at submission.
    """

    def __init__(self, **options: Any) -> None:
        self._given = {
            name: OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
            for name, value in options.items()
        }

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Check the options, and check that this machine can submit; raise ConfigError."""
        from llmexp.slurm.queue import check_slurm
        from llmexp.slurm.submit import check_submitit

        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self._options = read_options(self._given)
        check_slurm()
        check_submitit()

    def runner(self, jobs: Sequence[Job]) -> Runner:
        """Return the runner that submits; raise ConfigError where a job's hardware is that of this machine."""
        from llmexp.sweep.cluster import RunsOnCluster

        chosen = self._config.hydra.runtime.choices.get("hardware")
        if any(_hardware(job, chosen) in DETECTING for job in jobs):
            raise ConfigError(
                "hydra/launcher=slurm: name the nodes' hardware, as in hardware=h100: auto would be this machine's"
            )
        check_one_driver([job.plan for job in jobs], "slurm")
        return RunsOnCluster(self._options)


def _hardware(job: Job, default: str) -> str:
    named = [override.partition("=")[2] for override in job.overrides if override.startswith("hardware=")]
    return named[-1] if named else default
