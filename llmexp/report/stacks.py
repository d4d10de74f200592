"""What changed between runs: whether code, libraries or devices did, and which versions differ between runtimes."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.report.row import Row


def versions_of(rows: Sequence[Row]) -> dict[str, str]:
    """Return the versions in each runtime of the distributions that differ between these runs."""
    known = {row.comparison_key["runtime"]: row.distributions for row in rows if row.distributions}
    names = sorted({name for versions in known.values() for name in versions})
    differing = [name for name in names if len({versions.get(name) for versions in known.values()}) > 1]
    return {
        runtime: ", ".join(f"{name} {versions[name]}" for name in differing if name in versions)
        for runtime, versions in known.items()
    }


def has_several_stacks(rows: Sequence[Row]) -> bool:
    """Tell whether code, libraries or devices changed between runs of one engine, hardware and runtime."""
    stacks: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        if row.result and row.result.stack:
            alike = tuple(row.comparison_key[name] for name in ("engine", "hardware", "runtime"))
            stacks.setdefault(alike, set()).add(row.result.stack)
    return any(len(found) > 1 for found in stacks.values())
