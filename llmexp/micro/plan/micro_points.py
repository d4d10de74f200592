"""The points of a run of microbenchmarks, from its configuration: every benchmark at every size."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.dtypes import HALF, SINGLE
from llmexp.errors import ConfigError
from llmexp.machine import bf16
from llmexp.micro.config import MicroRunConfig
from llmexp.micro.families.base import MicroPoint, Setting
from llmexp.registry import families, family_names


def points_of(config: MicroRunConfig) -> list[MicroPoint]:
    """Return the points in the order in which they are measured.

    Raises ConfigError where there is none, or where a model's sizes are wanted and not known.
    """
    micro = config.micro
    setting = Setting(config.hardware, config.model, dtypes_of(config), _without_model())
    wanted = [(family, micro.section(family)) for family in families()]
    found = [point for family, keys in wanted if keys is not None for point in family.points(keys, setting)]
    if not found:
        raise ConfigError(f"micro={micro.name} has no points: set one of micro.{', micro.'.join(family_names())}")
    return found


def dtypes_of(config: MicroRunConfig) -> Sequence[str]:
    """Return micro.dtypes, or bf16 on GPUs, and on a CPU fp32 with bf16 where the processor multiplies it."""
    if config.micro.dtypes is not None:
        return config.micro.dtypes
    native = not bf16.lacks(config.hardware.model_dump())
    if config.hardware.device == "cuda":
        return (HALF,) if native else (SINGLE,)
    return (SINGLE, HALF) if native else (SINGLE,)


def _without_model() -> str:
    *others, last = [family.without_model for family in families() if family.without_model]
    return f"{', '.join(others)} and {last}"
