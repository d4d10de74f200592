"""hydra/launcher=slurm: the runs of a sweep as jobs of a SLURM cluster, planned where they are submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from llmexp.cli.compose import container_of
from llmexp.cli.jobs import Job, plan_of, words_of
from llmexp.errors import ConfigError
from llmexp.slurm.options import DEFAULTS, read_options

# Files of conf/hardware that say what the submitting machine has.
DETECTING = ("auto", "gpu")
_NODE = {"_target_": "hydra_plugins.llmexp_slurm.launcher.SlurmLauncher", **DEFAULTS}
ConfigStore.instance().store(group="hydra/launcher", name="slurm", node=_NODE, provider="llmexp")


class SlurmLauncher(Launcher):
    """Takes plans, so that nothing is composed again on a node and what was planned at submission is what runs."""

    def __init__(self, **options: Any) -> None:
        self._given = {name: OmegaConf.to_container(value) if OmegaConf.is_config(value) else value for name, value in options.items()}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Check the options and that this machine can submit; raises ConfigError."""
        from llmexp.slurm.queue import check_slurm
        from llmexp.slurm.submit import check_submitit

        self._loader, self._config = hydra_context.config_loader, config
        self._options = read_options(self._given)
        check_slurm()
        check_submitit()

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Plan the overrides that a sweeper of another package gives, and launch these plans."""
        composed = [(self._loader.load_sweep_config(self._config, list(overrides)), overrides) for overrides in job_overrides]
        jobs = [
            Job(tuple(overrides), plan_of(container_of(config), words_of(self._loader, config.hydra, overrides))) for config, overrides in composed
        ]
        return self.launch_jobs(jobs) or []

    def launch_jobs(self, jobs: Sequence[Job]) -> Sequence[JobReturn] | None:
        """Submit what has no answer yet and wait for it; None where nobody waits. Raises ConfigError before anything is submitted."""
        from llmexp.cli.cluster import launch_on_cluster

        chosen = self._config.hydra.runtime.choices.get("hardware")
        if any(_hardware(job, chosen) in DETECTING for job in jobs):
            raise ConfigError("hydra/launcher=slurm: name the nodes' hardware, as in hardware=h100: auto would be this machine's")
        return launch_on_cluster([job.plan for job in jobs], self._options)


def _hardware(job: Job, default: str) -> str:
    named = [override.partition("=")[2] for override in job.overrides if override.startswith("hardware=")]
    return named[-1] if named else default
