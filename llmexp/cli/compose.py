"""Hydra's composition of a sweep's jobs, done as seldom as their choices of groups allow."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from llmexp.cli.hydra_private import set_values
from llmexp.cli.places import without_idle_tokenizer


def container_of(config: DictConfig) -> dict[str, Any]:
    """Return a composed configuration as plain values, without Hydra's own part.

    Raises MissingMandatoryValue for a ???.
    """
    return _plain(_own(config))


@lru_cache(maxsize=1)
def groups_of(loader: ConfigLoader) -> frozenset[str]:
    """Return the names of all groups; they are cached, because Hydra searches every folder each time."""
    return frozenset(loader.list_groups(""))


class Composer:
    """A composer that asks Hydra once for each choice of groups, because that takes some 50 ms.

    The values of a job are then set by the function that Hydra uses in its last step.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig, words: Sequence[str]) -> None:
        self._loader, self._master, self._words = loader, master, list(words)
        self._parser = OverridesParser.create(config_loader=loader)
        self._groups = groups_of(loader)
        self._composed: dict[tuple[str, ...], DictConfig] = {}

    def container(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Return the job's configuration as plain values; raises Hydra's errors and ConfigError."""
        return _plain(self.config(overrides))

    def config(self, overrides: Sequence[str]) -> DictConfig:
        """Return the job's configuration with its interpolations as written; raises Hydra's errors and ConfigError."""
        if list(overrides) == self._words:
            return _own(self._master)
        parsed = self._parser.parse_overrides(list(overrides))
        values = [override for override in parsed if self._is_value(override)]
        choices = tuple(word for word, override in zip(overrides, parsed, strict=True) if not self._is_value(override))
        if choices not in self._composed:
            self._composed[choices] = _own(self._loader.load_sweep_config(self._master, list(choices)))
        config = deepcopy(self._composed[choices])
        set_values(values, config)
        return without_idle_tokenizer(config)

    def _is_value(self, override: Override) -> bool:
        """Tell whether an override sets a value after everything is composed.

        A deletion does too, but here it could be applied in another order than among the other words.
        """
        key = override.key_or_group
        return not (
            key in self._groups
            or "/" in key
            or override.package
            or override.is_delete()
            or key.split(".")[0] == "hydra"
        )


def _own(config: DictConfig) -> DictConfig:
    """Return a composed configuration without Hydra's part, which stays closed to unknown keys."""
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    OmegaConf.set_struct(own, True)
    return without_idle_tokenizer(own)


def _plain(config: DictConfig) -> dict[str, Any]:
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)  # type: ignore[return-value]
