"""The part of a recorded trace of requests that is sent, with the time and the lengths of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from llmexp.errors import ConfigError
from llmexp.serving.config.load import TraceConfig
from llmexp.serving.plan.trace_rows import KEY, Recorded, read_rows, wrong


class TracedRequest(NamedTuple):
    """One request: when it is due after the first, and its tokens; `hash_ids` name the blocks of its prompt."""

    due_s: float
    prompt_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...]
    line: int


@dataclass(frozen=True)
class RequestTrace:
    """The requests of a trace that are sent."""

    path: Path
    form: str
    requests: tuple[TracedRequest, ...]
    left_out: int
    """Requests in the same span that had no tokens, in or out, or more than serve.trace.max_tokens."""

    @property
    def rate_per_s(self) -> float | None:
        """The requests per second from the first to the last one; None where all are due at once."""
        span_s = self.requests[-1].due_s
        return (len(self.requests) - 1) / span_s if span_s else None

    @property
    def longest(self) -> int:
        """The most tokens of a request, prompt and output together."""
        return max(request.prompt_tokens + request.output_tokens for request in self.requests)

    def check_lengths(self, positions: int) -> None:
        """Raise ConfigError where a prompt and its output have no room in the model's positions."""
        longer = [each for each in self.requests if each.prompt_tokens + each.output_tokens > positions]
        if longer:
            first, others = longer[0], len(longer) - 1
            also = f", and so are {others} more" if others else ""
            raise wrong(
                self.path,
                first.line,
                f"{first.prompt_tokens} + {first.output_tokens} tokens are more than model.max_positions={positions}"
                f"{also}: serve.trace.max_tokens={positions} leaves them out",
            )


def load_trace(config: TraceConfig, most: int) -> RequestTrace:
    """Read so many requests at most of the part that the configuration asks for, no further.

    Raises ConfigError with file and line for a broken line, and where nothing is left. A file is read again only after
    it has changed.
    """
    path = Path(config.file).expanduser()
    try:
        state = path.stat()
    except OSError as error:
        raise ConfigError(f"{KEY}={config.file}: cannot be read: {error.strerror}") from None
    return _load(path, config, most, state.st_size, state.st_mtime_ns)


@cache
def _load(path: Path, config: TraceConfig, most: int, _size: int, _changed_ns: int) -> RequestTrace:
    form, recorded = read_rows(path)
    kept: list[Recorded] = []
    left_out = 0
    for each in _span(recorded, config):
        if not _fits(each, config):
            left_out += 1
            continue
        _check_blocks(each, config.block_tokens, path)
        kept.append(each)
        if len(kept) == most:
            break
    if not kept:
        raise ConfigError(f"{KEY}: {path} has no request to send here, and {left_out} were left out")
    return RequestTrace(path, form, tuple(_due(kept, config.speed)), left_out)


def _due(kept: list[Recorded], speed: float) -> Iterator[TracedRequest]:
    for each in kept:
        due_s = (each.time_us - kept[0].time_us) / 1e6 / speed
        yield TracedRequest(due_s, each.prompt_tokens, each.output_tokens, each.hash_ids, each.line)


def _span(recorded: Iterator[Recorded], config: TraceConfig) -> Iterator[Recorded]:
    begin_us: int | None = None
    for each in recorded:
        begin_us = each.time_us if begin_us is None else begin_us
        since_s = (each.time_us - begin_us) / 1e6
        if config.end_s is not None and since_s >= config.end_s:
            return
        if since_s >= config.begin_s:
            yield each


def _fits(each: Recorded, config: TraceConfig) -> bool:
    """Tell whether a request can be sent; one without tokens failed when it was recorded."""
    tokens = each.prompt_tokens + each.output_tokens
    return bool(each.prompt_tokens and each.output_tokens) and tokens <= (config.max_tokens or tokens)


def _check_blocks(each: Recorded, block_tokens: int, path: Path) -> None:
    blocks = -(-each.prompt_tokens // block_tokens)
    if each.hash_ids and len(each.hash_ids) != blocks:
        raise wrong(
            path,
            each.line,
            f"{len(each.hash_ids)} hash_ids for {each.prompt_tokens} tokens, which are {blocks} blocks of "
            f"{block_tokens}: set serve.trace.block_tokens to those of the trace",
        )
