"""What a section's runs were asked: the command's words that all share, what changes, and how the runs ended."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from llmexp.report.row import OOM, Row
from llmexp.report.section import ReportSection
from llmexp.report.text_list import listed


def asked(section: ReportSection) -> list[tuple[str, str]]:
    """Return pairs of a term and what it was: subjects, hardware, ranks, runs by state."""
    rows = section.rows
    found = [(name, listed(_values(rows, name))) for name in (rows[0].plan.subject if rows else {})]
    found += [("hardware", listed(list(dict.fromkeys(row.hardware for row in rows))))]
    found += [("ranks", listed(list(dict.fromkeys(str(row.processes) for row in rows))))]
    states = Counter("out of memory" if row.state == OOM else row.state for row in rows)
    ended = ", ".join(f"{count} {state}" for state, count in states.most_common())
    return [*found, ("sweep", listed(_sweeps(rows))), ("runs", f"{len(rows)}: {ended}")]


def shared_command(rows: Sequence[Row]) -> str:
    """Return the words that the commands of all rows share, with an ellipsis where others stand."""
    commands = [row.words for row in rows]
    if not commands:
        return ""
    kept = set(commands[0]).intersection(*commands)
    words = [shlex.quote(word) if word in kept else "…" for word in commands[0]]
    return " ".join(word for place, word in enumerate(words) if word != "…" or words[place - 1 : place] != ["…"])


def _values(rows: Sequence[Row], name: str) -> list[str]:
    return list(dict.fromkeys(row.plan.subject[name] for row in rows if name in row.plan.subject))


def _sweeps(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.plan.config.sweep.name for row in rows))
