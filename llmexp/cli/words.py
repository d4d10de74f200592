"""The meaning of a command line's words: the composed sweep, and the plans of its runs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.types import RunMode

from llmexp.cli.app import CONFIG, hydra_app
from llmexp.cli.jobs import Job, answers, choices_of, plan_jobs
from llmexp.cli.overrides import accept
from llmexp.errors import ConfigError
from llmexp.plugins import known_files
from llmexp.record.plan import RunPlan

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig

    from llmexp.cli.hydra_private import Hydra


def jobs_of(args: Namespace) -> list[Job]:
    """Plan what the overrides say and start nothing."""
    with sweep_of(args) as (loader, master):
        return plan_jobs(loader, master)


def jobs_and_launcher(args: Namespace) -> tuple[list[Job], DictConfig]:
    """Plan the same, and return with it the launcher's own keys as they are composed."""
    with sweep_of(args) as (loader, master):
        return plan_jobs(loader, master), master.hydra.launcher


def answers_of(args: Namespace) -> list[tuple[Sequence[str], RunPlan | ConfigError]]:
    """Plan the same, and return for each run its plan or the error that says why it has none."""
    with sweep_of(args) as (loader, master):
        return list(answers(loader, master, choices_of(loader, master)))


def own_folder(args: Namespace) -> Path | None:
    """Return the folder of --config-dir; raises ConfigError where it is missing or hides files.

    It hides files where one of them has the name of a file of llmexp, which would be read in its place.
    """
    if args.config_dir is None:
        return None
    folder = Path(args.config_dir).resolve()
    if not folder.is_dir():
        raise ConfigError(f"--config-dir {args.config_dir}: no such folder")
    for known in known_files():
        own = folder / known.name
        if own.is_file() and not own.samefile(known.path):
            raise ConfigError(
                f"--config-dir {args.config_dir}: {own} has the name of {known.path}, which would be read in "
                "its place: rename it"
            )
    return folder


def search_path(folder: Path | None) -> list[str]:
    """Return the folder of --config-dir as the override that Hydra also accepts in a sweep."""
    return [f"hydra.searchpath=[file://{folder}]"] if folder else []


@contextmanager
def sweep_of(args: Namespace) -> Iterator[tuple[ConfigLoader, DictConfig]]:
    """Compose the sweep that the overrides describe."""
    folder = own_folder(args)
    with hydra_app(folder) as hydra:
        yield hydra.config_loader, composed(hydra, accept(hydra.config_loader, search_path(folder) + args.overrides))


def composed(hydra: Hydra, overrides: list[str]) -> DictConfig:
    """Compose a sweep as Hydra does before its jobs."""
    return hydra.compose_config(CONFIG, overrides, RunMode.MULTIRUN)
