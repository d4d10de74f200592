"""The lines that say who told what a server held: its weights, and the room of its KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from llmexp.report.row import Row

_HELD = {"weights_bytes_from": "weights", "kv_cache_from": "tokens of the KV cache"}


def held_lines(rows: Sequence[Row], label: Callable[[Row], str]) -> Iterator[str]:
    """Yield a line for weights and one for the cache: the sources, each with its runs where there are several."""
    for name, what in _HELD.items():
        by_source: dict[str, list[str]] = {}
        for row in rows:
            source = row.result.what_ran.get(name) if row.result else None
            if source:
                by_source.setdefault(str(source), []).append(label(row))
        if by_source:
            yield f"{what}: by {'; by '.join(_words(by_source))}"


def _words(by_source: dict[str, list[str]]) -> list[str]:
    if len(by_source) == 1:
        return list(by_source)
    return [f"{source} ({', '.join(dict.fromkeys(runs))})" for source, runs in by_source.items()]
