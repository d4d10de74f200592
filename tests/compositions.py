"""Hydra's work on conf/ is done once for each choice of groups in a process; some thousand tests would each repeat it.

What is remembered depends on nothing but the files of llmexp and Hydra, and on what their lists of defaults ask the
machine, which is asked each time. Values are set anew in each composition. Where a folder or a package of one's own is
searched too, only the grammar's trees are remembered, and files for as long as they stay.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import InputDefault
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf, base
from omegaconf.errors import OmegaConfBaseException

CHOICES = defaults_list._create_interpolation_map
# What the last list of defaults has asked, such as ${llmexp.detected_hardware:}.
ANSWERS: dict[str, str] = {}
OWN = {"pkg://hydra.conf", "pkg://llmexp.conf", "structured://"}


def remember(patch: pytest.MonkeyPatch) -> None:
    """Let this process do it once."""
    # This runs the modules of Hydra's sources once more: the class that it registers is not the one of an import.
    Plugins.instance()
    packaged: Any = SourcesRegistry.instance().types["pkg"]
    patch.setattr(packaged, "_read_config", _read_once(packaged._read_config))
    patch.setattr(config_loader_impl, "create_defaults_list", _listed_once(config_loader_impl.create_defaults_list))
    for name, once in (("_compose_config_from_defaults_list", _composed_once), ("get_group_options", _options_once)):
        patch.setattr(ConfigLoaderImpl, name, once(getattr(ConfigLoaderImpl, name)))
    patch.setattr(CachingConfigRepository, "__init__", _repository)
    patch.setattr(base, "parse", cache(base.parse))
    patch.setattr(defaults_list, "_create_interpolation_map", _choices_when_asked)
    patch.setattr(InputDefault, "_resolve_interpolation_impl", _asked(InputDefault._resolve_interpolation_impl))


def _is_own(repository: IConfigRepository) -> bool:
    return {f"{source.scheme()}://{source.path}" for source in repository.get_sources()} <= OWN


def _read_once(read: Callable[..., ConfigResult]) -> Callable[..., ConfigResult]:
    known: dict[Any, bytes] = {}  # which pickle copies four times as quickly as deepcopy

    def remembered(source: ConfigSource, file: Path) -> ConfigResult:
        key = (source.provider, file, file.stat().st_mtime_ns)
        if key not in known:
            known[key] = pickle.dumps(read(source, file))
        found: ConfigResult = pickle.loads(known[key])
        return found

    return remembered


def _listed_once(listed: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[str, tuple[Any, dict[str, str]]] = {}

    def remembered(repo: IConfigRepository, config_name: str, overrides_list: Sequence[Override], **how: bool) -> Any:
        arguments = {"repo": repo, "config_name": config_name, "overrides_list": overrides_list, **how}
        if not _is_own(repo):
            return listed(**arguments)
        wanted = defaults_list.Overrides(repo, list(overrides_list))
        key = repr((config_name, how, wanted.override_choices, wanted.append_group_defaults, wanted.deletions))
        if key not in known or not _still(known[key][1]):
            ANSWERS.clear()
            known[key] = listed(**arguments), dict(ANSWERS)
        return replace(known[key][0], config_overrides=wanted.config_overrides)

    return remembered


def _still(answers: dict[str, str]) -> bool:
    """Tell whether what was asked of the machine has the same answers as then."""
    try:
        return all(OmegaConf.create({"asked": asked})["asked"] == said for asked, said in answers.items())
    except OmegaConfBaseException:
        return False


def _choices_when_asked(overrides: Any, *arguments: Any) -> Callable[[], DictConfig]:
    """Make a configuration of the choices so far only for a default that names one."""
    return partial(CHOICES, SimpleNamespace(known_choices=dict(overrides.known_choices)), *arguments)


def _asked(resolved: Callable[..., str]) -> Callable[..., str]:
    def noted(self: InputDefault, choices: Callable[[], DictConfig], asked: str) -> str:
        ANSWERS[asked] = resolved(self, choices(), asked)
        return ANSWERS[asked]

    return noted


def _composed_once(composed: Callable[..., DictConfig]) -> Callable[..., DictConfig]:
    known: dict[str, bytes] = {}

    def remembered(self: ConfigLoaderImpl, defaults: Sequence[Any], repo: IConfigRepository) -> DictConfig:
        if not _is_own(repo):
            return composed(self, defaults=defaults, repo=repo)
        if (key := repr(defaults)) not in known:
            known[key] = pickle.dumps(composed(self, defaults=defaults, repo=repo))
        found: DictConfig = pickle.loads(known[key])
        return found

    return remembered


def _options_once(options: Callable[..., list[str]]) -> Callable[..., list[str]]:
    known: dict[Any, list[str]] = {}

    def remembered(self: ConfigLoaderImpl, *arguments: Any, **named: Any) -> list[str]:
        if not _is_own(self.repository) or any("searchpath" in word for word in named.get("overrides") or ()):
            return options(self, *arguments, **named)
        key = repr((arguments, named))
        if key not in known:
            known[key] = options(self, *arguments, **named)
        return list(known[key])

    return remembered


def _repository(self: CachingConfigRepository, delegate: IConfigRepository) -> None:
    """Take the place of a deep copy: what may be changed in a copy is which sources it has."""
    self.delegate, self.cache = copy(delegate), {}
