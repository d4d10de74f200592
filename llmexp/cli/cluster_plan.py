"""What a planned sweep would ask of a SLURM cluster, without asking it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from llmexp.record.plan import RunPlan
from llmexp.slurm.options import read_options
from llmexp.slurm.submit import asked_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

_TARGET = "_target_"
_SLURM = "llmexp_slurm"


def cluster_lines(plans: Sequence[RunPlan], launcher: DictConfig) -> list[str]:
    """Return a line for each array of jobs with hydra/launcher=slurm, else none; raises ConfigError for bad options."""
    given: Any = OmegaConf.to_container(launcher, resolve=True)
    if _SLURM not in str(given.pop(_TARGET, "")):
        return []
    options = read_options(given)
    arrays = Counter(_words(asked_of(plan, options)) for plan in plans)
    return [f"slurm: {_jobs(count)}, each {words}\n" for words, count in arrays.items()]


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"an array of {count} jobs"


def _words(asked: dict[str, Any]) -> str:
    """Return what one job asks for, by sbatch's own names."""
    parts = {"ntasks_per_node": 1} | {name: value for name, value in asked.items() if name != "additional_parameters"}
    flat = parts | asked["additional_parameters"]
    return " ".join(
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in flat.items()
    )
