"""Hydra over conf/: started once a command, its errors explained once, its overrides checked before anything is composed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra import initialize_config_module
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from llmexp.cli.explain import explain
from llmexp.errors import ConfigError, nearest
from llmexp.method import ATOMS
from llmexp.plan.detect import detect
from llmexp.schema import check_key

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra

CONFIG = "config"
RESOLVERS: dict[str, Callable[..., Any]] = {
    "detected_hardware": lambda: f"/hardware/{detect().hardware}",
    "detected": lambda field: getattr(detect(), field),
    "model_name": lambda path: Path(path).name if path else "hf",
    "atoms": lambda: "\n  ".join(f"{atom.code:<5}{atom.help}" for atom in ATOMS.values()),
}
for name, resolver in RESOLVERS.items():
    OmegaConf.register_new_resolver(f"llmexp.{name}", resolver, replace=True)  # at import: a job unpickled on another machine needs them too


@contextmanager
def hydra_app() -> Iterator[Hydra]:
    """Give Hydra with conf/ and llmexp's sweeper; what goes wrong inside becomes a ConfigError."""
    try:
        with initialize_config_module("llmexp.conf", job_name="llmexp", version_base="1.3"):
            from hydra_plugins.llmexp_sweeper.sweeper import LlmexpSweeper

            Plugins.instance().register(LlmexpSweeper)  # an editable install hides hydra_plugins from Hydra's own search
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            yield hydra
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error) from None


def accept(loader: ConfigLoader, words: Sequence[str]) -> list[str]:
    """Turn overrides as people type them into Hydra's; raises ConfigError for a key that there is not.

    A plus sign in front makes no difference: groups and method are set, other keys are set whether the YAML has them or only the schema.
    """
    for word in words:
        _check_form(word)
    groups = set(loader.list_groups(""))
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(words))
    return [_accept_one(override, groups) for override in parsed]


def as_typed(overrides: Sequence[str]) -> list[str]:
    """The overrides without Hydra's plus signs."""
    return [override.lstrip("+") for override in overrides]


def _check_form(word: str) -> None:
    from llmexp.cli.commands import COMMANDS

    if "=" not in word and not word.startswith("~"):
        guess = nearest(word, COMMANDS)
        hint = f"did you mean {guess}? " if guess else ""
        raise ConfigError(f"'{word}' is neither key=value nor a command: {hint}commands are {', '.join(COMMANDS)}")


def _accept_one(override: Override, groups: set[str]) -> str:
    key, line = override.key_or_group, _line(override)
    if key.partition("/")[0].partition(".")[0] == "hydra" or override.package or override.is_delete():
        return line
    plain = line.lstrip("+")
    if key in groups:
        return plain
    check_key(key)
    return plain if key == "method" else f"++{plain}"


def _line(override: Override) -> str:
    line: Any = override.input_line
    return str(line)
