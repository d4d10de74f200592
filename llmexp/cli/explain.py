"""Hydra's and OmegaConf's errors, which fill a screen, as one line that says what to type instead."""

from __future__ import annotations

import re

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from llmexp.errors import ConfigError, unknown

GRAMMAR = "write key=value, and quote values with special characters: 'key=\"a b\"'"


def explain(error: HydraException | OmegaConfBaseException) -> ConfigError:
    """Build the one line for an error of Hydra's composition."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return unknown(group, option, error.options)
    if isinstance(error, OverrideParseException):
        return ConfigError(f"cannot read '{error.override}'{_reason(error.__cause__ or error.__context__)}: {GRAMMAR}")
    if isinstance(error, MissingMandatoryValue):
        return ConfigError(f"{error.full_key} is missing: set {error.full_key}=<value>")
    return ConfigError(_one_line(error) + _reason(error.__cause__))


def _reason(cause: BaseException | None) -> str:
    return f" ({_one_line(cause)})" if cause else ""


def _one_line(error: BaseException) -> str:
    """Join the lines, without OmegaConf's own coordinates of the node."""
    lines = [line.strip() for line in str(error).splitlines() if not re.match(r"\s*(full_key|object_type|reference_type)[:=]", line)]
    return " ".join(line for line in lines if line)
