"""The words of a search: those that name several values are its dimensions, the others belong to every trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep

from llmexp.errors import ConfigError
from llmexp.sweep.search.space import Dimension, SearchChoices, SearchPoint, SearchRange, points_of

_SHOWN = "optimizer.lr='tag(log, interval(1e-5, 1e-2))' or batch.micro=1,2,4"


@dataclass(frozen=True)
class SearchWords:
    """The words in Hydra's form: `fixed` of every trial, and the dimensions with what stands before their values."""

    fixed: Sequence[str]
    space: Sequence[Dimension]
    _begins: Sequence[str]

    def of(self, point: SearchPoint) -> list[str]:
        """Return the overrides of one trial."""
        values = (point[dimension.key] for dimension in self.space)
        return [*self.fixed, *(f"{begin}={value}" for begin, value in zip(self._begins, values, strict=True))]


def search_words(loader: ConfigLoader, words: Sequence[str]) -> SearchWords:
    """Read a search's words, of which the last for a key counts; raises ConfigError where none names several values."""
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(words))
    last = {override.get_key_element(): override for override in parsed}
    swept = [override for override in last.values() if override.is_sweep_override()]
    if not swept:
        raise ConfigError(f"no choices and no interval to search in: add some, such as {_SHOWN}")
    fixed = [_line(override) for override in last.values() if not override.is_sweep_override()]
    space = [_dimension(override) for override in swept]
    if points_of(space) == 1:
        raise ConfigError(f"{_typed(swept[0])} names one value: a search needs two or more, such as {_SHOWN}")
    return SearchWords(fixed, space, [_line(override).partition("=")[0] for override in swept])


def _dimension(override: Override) -> Dimension:
    value: Any = override.value()
    tags: set[str] = getattr(value, "tags", set())
    if unknown := tags - {"log"}:
        raise ConfigError(f"{_typed(override)}: unknown tag '{min(unknown)}'; the only one is log")
    if isinstance(value, IntervalSweep):
        found = _interval(override, value, log=bool(tags))
    elif tags:
        raise ConfigError(f"{_typed(override)}: log is for intervals: leave it out")
    elif isinstance(value, RangeSweep) and isinstance(value.range(), range):
        found = _whole_numbers(override, value)
    else:
        return _choices(override)
    if found.low >= found.high:
        raise ConfigError(f"{_typed(override)}: the end is not above the start")
    return found


def _choices(override: Override) -> SearchChoices:
    values = tuple(dict.fromkeys(override.sweep_string_iterator()))
    if not values:
        raise ConfigError(f"{_typed(override)}: there is no such value")
    return SearchChoices(override.key_or_group, values)


def _interval(override: Override, value: IntervalSweep, log: bool) -> SearchRange:
    low, high = value.start or 0, value.end or 0
    if log and low <= 0:
        raise ConfigError(f"{_typed(override)}: log needs a start above 0")
    return SearchRange(override.key_or_group, low, high, log=log, whole=isinstance(low, int) and isinstance(high, int))


def _whole_numbers(override: Override, value: RangeSweep) -> SearchRange:
    """Return Hydra's range(), which leaves its end out."""
    values = sorted(value.range()) or [0]
    step = values[1] - values[0] if len(values) > 1 else 1
    return SearchRange(override.key_or_group, values[0], values[-1], step, whole=True)


def _line(override: Override) -> str:
    return str(override.input_line)


def _typed(override: Override) -> str:
    return _line(override).lstrip("+")
