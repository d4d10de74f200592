"""The lengths of prompts and outputs: each by its request's number, and the longest of all before any is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from math import exp, log, log1p, sqrt
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Protocol

from llmexp.errors import ConfigError
from llmexp.plan.draws import Series
from llmexp.plan.lines import numbered_lines
from llmexp.schema.lengths import Lengths

MOST_LISTED = 1_000_000
NORMAL = NormalDist()
BELOW_ONE = 1 - 2**-53


class Distribution(Protocol):
    """Lengths in tokens, by numbers that are equally likely between 0 and 1."""

    @property
    def longest(self) -> int:
        """The most tokens there can be."""

    @property
    def mean(self) -> float:
        """The tokens there are on average."""

    def at(self, share: float) -> int:
        """Return the length below which this share of all lengths lies."""


@dataclass(frozen=True)
class Between:
    """Lengths that are equally likely; one alone where the bounds are the same."""

    least: int
    longest: int

    @property
    def mean(self) -> float:
        """See Distribution."""
        return (self.least + self.longest) / 2

    def at(self, share: float) -> int:
        """See Distribution."""
        return self.least + int(share * (self.longest - self.least + 1))


@dataclass(frozen=True)
class CutLognormal:
    """Lengths whose logarithms are normal, without those that lie outside of the limits.

    What is outside is not put onto the limits, where it would make a heap: the distribution is that of lengths drawn
    again until one is inside.
    """

    uncut_mean: int
    variation: float
    least: int
    longest: int

    def at(self, share: float) -> int:
        """See Distribution."""
        low, high = self._probabilities
        drawn = NORMAL.inv_cdf(min(low + share * (high - low), BELOW_ONE))
        return min(max(round(exp(self._log_mean + self._log_deviation * drawn)), self.least), self.longest)

    @cached_property
    def mean(self) -> float:
        """The mean between the limits, before lengths are rounded."""
        low, high = self._probabilities
        inside = [NORMAL.cdf(limit - self._log_deviation) for limit in self._limits]
        return self.uncut_mean * (inside[1] - inside[0]) / (high - low)

    @property
    def _log_deviation(self) -> float:
        return sqrt(log1p(self.variation**2))

    @property
    def _log_mean(self) -> float:
        return log(self.uncut_mean) - self._log_deviation**2 / 2

    @cached_property
    def _limits(self) -> tuple[float, float]:
        """The limits as deviations of the logarithm; half a token further out, because lengths are rounded."""
        low, high = (log(limit) - self._log_mean for limit in (self.least - 0.5, self.longest + 0.5))
        return low / self._log_deviation, high / self._log_deviation

    @cached_property
    def _probabilities(self) -> tuple[float, float]:
        return NORMAL.cdf(self._limits[0]), NORMAL.cdf(self._limits[1])


@dataclass(frozen=True)
class Listed:
    """Lengths of a file, each row as likely as the others."""

    rows: tuple[int, ...]

    @cached_property
    def longest(self) -> int:
        """See Distribution."""
        return max(self.rows)

    @cached_property
    def mean(self) -> float:
        """See Distribution."""
        return fmean(self.rows)

    def at(self, share: float) -> int:
        """See Distribution."""
        return self.rows[int(share * len(self.rows))]


@dataclass(frozen=True)
class LengthDraw:
    """The lengths of a section, by request."""

    key: str
    distribution: Distribution

    @classmethod
    def of(cls, section: Lengths) -> LengthDraw:
        """Read the section's file, where it has one; raises ConfigError with file and line for a wrong line."""
        return cls(section.key, _distribution(section))

    def at(self, series: Series, request: int, turn: int = 0) -> int:
        """Return the tokens of a request's turn, which depend on seed, load point and these two numbers only."""
        # Rows of a prompts' and an outputs' file of the same length belong together.
        purpose = "row" if isinstance(self.distribution, Listed) else self.key
        return self.distribution.at(series.share(purpose, (request, turn)))

    @property
    def longest(self) -> int:
        """The most tokens that a request can have."""
        return self.distribution.longest


def longest_request(prompt: int, output: int, positions: int, prefix: int = 0, turns: int = 1) -> int:
    """Return the tokens of the longest request with its output, which is the last turn of a conversation.

    Raises ConfigError where it has no room in the model's positions.
    """
    tokens = prefix + turns * (prompt + output)
    if tokens <= positions:
        return tokens
    each = f"prompt {prompt} + output {output}"
    together = f"{turns} turns x ({each})" if turns > 1 else each
    before = f"serve.prefix {prefix} + " if prefix else ""
    raise ConfigError(
        f"serve.prompt and serve.output: {before}{together} = {tokens} tokens are more than "
        f"model.max_positions={positions}: make them shorter, or take a model with more positions"
    )


def _distribution(section: Lengths) -> Distribution:
    tokens = section.tokens
    if isinstance(tokens, str):
        return _of_file(Path(tokens).expanduser(), f"{section.key}.tokens")
    if isinstance(tokens, tuple):
        return Between(*tokens)
    if section.variation and section.limits:
        return CutLognormal(tokens, section.variation, *section.limits)
    return Between(tokens, tokens)


def _of_file(path: Path, key: str) -> Listed:
    """Read a file of lengths, again only after it has changed; raises ConfigError for a wrong one."""
    if not path.is_file():
        raise ConfigError(
            f"{key}={path}: must be a whole number of at least 1, or [least,most], or a file with a length in each "
            "line, and there is no such file"
        )
    state = path.stat()
    return _listed(path, key, state.st_size, state.st_mtime_ns)


@cache
def _listed(path: Path, key: str, _size: int, _changed_ns: int) -> Listed:
    rows = tuple(_rows(path, key))
    if not rows:
        raise ConfigError(f"{key}: {path} has no lengths: write one in each line, in tokens")
    return Listed(rows)


def _rows(path: Path, key: str) -> Iterator[int]:
    found = 0
    for line, text in numbered_lines(path, key):
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise ConfigError(f"{key}: {path}:{line}: expected one length, a whole number above 0, not {text[:40]!r}")
        found += 1
        if found > MOST_LISTED:
            raise ConfigError(f"{key}: {path} has more than {MOST_LISTED:,} lengths")
        yield int(text)
