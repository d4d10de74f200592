"""The lengths of prompts and outputs: each by its request's number, and the longest of all before any is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from llmexp.errors import ConfigError
from llmexp.serving.config.lengths import Lengths
from llmexp.serving.plan.draws import DrawSeries
from llmexp.serving.plan.length_distributions import Between, CutLognormal, Distribution, Listed
from llmexp.serving.plan.lines import numbered_lines

MOST_LISTED = 1_000_000


@dataclass(frozen=True)
class LengthDraw:
    """The lengths of a section, by request."""

    key: str
    distribution: Distribution

    @classmethod
    def of(cls, section: Lengths) -> LengthDraw:
        """Read the section's file, where it has one; raises ConfigError with file and line for a wrong line."""
        return cls(section.key, _distribution(section))

    def at(self, series: DrawSeries, request: int, turn: int = 0) -> int:
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
    rows = tuple(islice(_rows(path, key), MOST_LISTED + 1))
    if not rows:
        raise ConfigError(f"{key}: {path} has no lengths: write one in each line, in tokens")
    if len(rows) > MOST_LISTED:
        raise ConfigError(f"{key}: {path} has more than {MOST_LISTED:,} lengths")
    return Listed(rows)


def _rows(path: Path, key: str) -> Iterator[int]:
    for line, text in numbered_lines(path, key):
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise ConfigError(f"{key}: {path}:{line}: expected one length, a whole number above 0, not {text[:40]!r}")
        yield int(text)
