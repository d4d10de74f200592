"""Which runs of a table did another training than those that were asked for the same one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llmexp.analysis.sameness import DIFFERENT, Sameness, same_training
from llmexp.report.row import Row

# Runs that did the same, and why they are told from the first cluster of their group.
Cluster = tuple[list[Row], str]


def other_trainings(rows: Sequence[Row]) -> dict[Path, str]:
    """Return why runs do not compare with others that were asked for the same training, by their folders.

    Where more than half of such runs agree, the others did another training. Otherwise nobody knows which of them did
    what was asked for, and none is to be compared.
    """
    groups: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in rows:
        if row.rate and row.asked_training:
            groups.setdefault(tuple(row.asked_training.items()), []).append(row)
    # What runs did is read only where another was asked for the same.
    together = (group for group in groups.values() if len(group) > 1)
    known = ([row for row in group if row.trained and row.trained.has_losses] for group in together)
    return {path: why for group in known if group for path, why in _odd_ones(group).items()}


def _odd_ones(group: Sequence[Row]) -> dict[Path, str]:
    clusters = _clusters(group)
    if len(clusters) == 1:
        return {}
    why = clusters[1][1]
    largest = max((cluster for cluster, _ in clusters), key=len)
    agreed = largest if 2 * len(largest) > len(group) else []
    return {row.folder.path: why for row in group if not any(row is one for one in agreed)}


def _clusters(group: Sequence[Row]) -> list[Cluster]:
    """Put each run to the first cluster whose first run it does not differ from."""
    clusters: list[Cluster] = []
    for row in group:
        found = [same_training(cluster[0].trained, row.trained) for cluster, _ in clusters]
        place = next((place for place, one in enumerate(found) if one.answer != DIFFERENT), None)
        if place is None:
            clusters.append(([row], _reason(found)))
        else:
            clusters[place][0].append(row)
    return clusters


def _reason(found: Sequence[Sameness]) -> str:
    return found[0].reason if found else ""
