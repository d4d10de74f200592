"""The ranks' collectives side by side: how long each took once the last rank had come, and how long others waited."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmexp.errors import TraceError
from llmexp.record.breakdown import CollectiveTime
from llmexp.traces.events import GLOO
from llmexp.traces.intervals import rows_of
from llmexp.traces.kinds import COMMUNICATION
from llmexp.traces.times import Numbers
from llmexp.traces.work import Work

MOST_COLLECTIVES = 1_000
_BETWEEN_TWO = re.compile("send|recv", re.IGNORECASE)


@dataclass(frozen=True)
class Calls:
    """One rank's calls of collectives by name, each the begins and ends in order."""

    of_name: dict[str, tuple[Numbers, Numbers]]

    @classmethod
    def of(cls, path: Path, names: Sequence[str], work: Work) -> Calls:
        """Take the collectives of a rank's work, on a CPU those of Gloo's threads; raises TraceError for too many."""
        carried = np.array([work.on_device or name.startswith(GLOO) for name in names], bool)
        found: dict[str, tuple[Numbers, Numbers]] = {}
        chosen = np.flatnonzero((work.category == COMMUNICATION) & carried[work.name])
        for number, rows in rows_of(work.name[chosen]):
            found[names[number]] = work.begin[chosen[rows]], work.end[chosen[rows]]
        if len(found) > MOST_COLLECTIVES:
            raise TraceError(
                f"{path} has more than {MOST_COLLECTIVES} different collectives, which is more than is read"
            )
        return cls(found)


def joined(windows: Sequence[Calls]) -> Calls:
    """Return the calls of one rank in several windows, one after the other."""
    names = dict.fromkeys(name for window in windows for name in window.of_name)
    each = {name: [window.of_name[name] for window in windows if name in window.of_name] for name in names}
    return Calls({name: _concatenated(calls) for name, calls in each.items()})


def _concatenated(calls: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    return np.concatenate([begin for begin, _ in calls]), np.concatenate([end for _, end in calls])


def collective_times(ranks: Sequence[Calls]) -> list[CollectiveTime]:
    """Match the calls of all ranks by name and order, and divide each into waiting and the collective itself.

    The ranks' clocks are aligned by the collectives' ends, which all ranks see at nearly the same time.
    """
    names = list(dict.fromkeys(name for rank in ranks for name in rank.of_name))
    matching = [
        name
        for name in names
        if not _BETWEEN_TWO.search(name) and len({len(rank.of_name.get(name, ((),))[0]) for rank in ranks}) == 1
    ]
    offsets = _offsets(ranks, matching)
    return [_time(name, ranks, offsets if name in matching and len(ranks) > 1 else None) for name in names]


def _offsets(ranks: Sequence[Calls], names: Sequence[str]) -> list[int]:
    """Return by how much each rank's clock is ahead of the first one's."""
    if not names:
        return [0] * len(ranks)
    ends = [np.concatenate([rank.of_name[name][1] for name in names]) for rank in ranks]
    return [int(np.median(each - ends[0])) for each in ends]


def _time(name: str, ranks: Sequence[Calls], offsets: Sequence[int] | None) -> CollectiveTime:
    calls = [rank.of_name[name] for rank in ranks if name in rank.of_name]
    work_ns = sum(int((end - begin).sum()) for begin, end in calls) // len(calls)
    pure_ns = None
    if offsets is not None:
        last_comes = np.max([begin - ahead for (begin, _), ahead in zip(calls, offsets, strict=True)], axis=0)
        pure = [
            np.clip(end - ahead - last_comes, 0, end - begin)
            for (begin, end), ahead in zip(calls, offsets, strict=True)
        ]
        pure_ns = int(np.mean([each.sum() for each in pure]))
    return CollectiveTime(
        name=name,
        calls=max(len(begin) for begin, _ in calls),
        work_ns=work_ns,
        pure_ns=pure_ns,
        waited_ns=None if pure_ns is None else work_ns - pure_ns,
    )
