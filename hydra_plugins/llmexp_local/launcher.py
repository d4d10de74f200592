"""Runs a sweep on this machine: hydra/launcher=local, the default."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.config_store import ConfigStore

from llmexp.cli.jobs import Job
from llmexp.cli.launchers import PlanLauncher
from llmexp.sweep.here import RunsHere
from llmexp.sweep.outside_servers import check_outside_servers
from llmexp.sweep.runner import Runner

_NODE = {"_target_": "hydra_plugins.llmexp_local.launcher.LocalLauncher"}
ConfigStore.instance().store(group="hydra/launcher", name="local", node=_NODE, provider="llmexp")


class LocalLauncher(PlanLauncher):
    """A launcher that measures plans in this process."""

    def runner(self, jobs: Sequence[Job]) -> Runner:
        """Return the runner that measures on this machine; raises ConfigError where a server that runs need is silent.

        Other launchers measure where this machine's network says nothing: there the node that measures asks.
        """
        check_outside_servers([job.plan for job in jobs])
        return RunsHere(self._began)
