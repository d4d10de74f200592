"""Plans as the command line makes them.

conf/ is composed once for each choice of its groups, where the command composes for each call.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.types import RunMode
from omegaconf import DictConfig

from llmexp.cli.app import CONFIG, hydra_app
from llmexp.cli.arguments import run_parser
from llmexp.cli.compose import Composer
from llmexp.cli.jobs import plan_of, words_of
from llmexp.cli.overrides import accept
from llmexp.cli.words import jobs_of
from llmexp.paper.printed import read_table
from llmexp.training.plan.training_plan import TrainingPlan

Measurement = dict[str, list[dict[str, Any]]]


def table03_methods(model: str = "7B") -> list[str]:
    return list(dict.fromkeys(row["method"] for row in read_table("table03_pretrain_bs1") if row["model"] == model))


def make_plan(*words: str) -> TrainingPlan:
    """Of one run, not of an experiment's cells."""
    loader, master, composer = _composed_once()
    overrides = accept(loader, list(words))
    return plan_of(composer.container(overrides), words_of(loader, master.hydra, overrides))


@cache
def _composed_once() -> tuple[ConfigLoader, DictConfig, Composer]:
    with hydra_app() as hydra:
        master = hydra.compose_config(CONFIG, [], RunMode.MULTIRUN)
        return hydra.config_loader, master, Composer(hydra.config_loader, master, [])


@cache
def make_plans(methods: tuple[str, ...], *words: str) -> dict[str, TrainingPlan]:
    """Of these methods, by their canonical names: planned as one sweep, which is composed once."""
    jobs = jobs_of(run_parser().parse_intermixed_args([*words, f"method={','.join(methods)}"]))
    return {job.plan.method: job.plan for job in jobs}
