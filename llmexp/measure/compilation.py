"""The work of torch.compile in this process, read from its own counters; without torch.compile there are none."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Compilation:
    """The counts since the process began: compiled graphs, recompilations included, and breaks of graphs."""

    graphs: int = 0
    graph_breaks: int = 0

    @classmethod
    def so_far(cls) -> Compilation:
        """Read the counters without importing the compiler."""
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is None:
            return cls()
        return cls(int(dynamo.counters["stats"]["unique_graphs"]), sum(dynamo.counters["graph_break"].values()))

    @property
    def what_ran(self) -> dict[str, int]:
        """The counts as a result keeps them; empty where nothing was compiled."""
        return {"compiled_graphs": self.graphs, "graph_breaks": self.graph_breaks} if self.graphs else {}
