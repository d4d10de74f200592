"""Private parts of Hydra (1.3) that llmexp needs; together with the sweeper, this file depends on Hydra's version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.default_element import GroupDefault
from hydra.core.override_parser.types import Override

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
    from omegaconf import DictConfig

__all__ = ["Hydra", "add_folder", "chosen_by", "multiplied", "set_values"]


def multiplied(overrides: list[Override]) -> list[list[str]]:
    """Multiply out the sweeps among overrides, as Hydra's own sweeper does."""
    return [list(job) for job in BasicSweeper.split_arguments(overrides, None)[0]]


def set_values(overrides: list[Override], config: DictConfig) -> None:
    """Set values in a composed configuration, as the last step of a composition does."""
    ConfigLoaderImpl._apply_overrides_to_config(overrides, config)


def chosen_by(loader: ConfigLoader, config: str, group: str) -> str | None:
    """Return the option of a group that a config's own list of defaults chooses; None where it chooses none."""
    assert isinstance(loader, ConfigLoaderImpl)
    found = loader.repository.load_config(config)
    defaults = [each for each in (found.defaults_list or [] if found else []) if isinstance(each, GroupDefault)]
    return next((str(each.value) for each in defaults if (each.group or "").strip("/") == group), None)


def add_folder(hydra: Hydra, folder: Path) -> None:
    """Let Hydra list a folder's groups and options; the override hydra.searchpath only lets it compose them."""
    loader = hydra.config_loader
    assert isinstance(loader, ConfigLoaderImpl)
    loader.config_search_path.prepend(
        "--config-dir", f"file://{folder}", anchor="schema"
    )  # Hydra requires its schema to be the last
    loader.repository.initialize_sources(loader.config_search_path)
