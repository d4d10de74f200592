"""Which test files share a worker of pytest-xdist, because they share what takes long to start or to make."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

# What pip installs for the tests of packages of others, and a server of MLflow.
FOLDERS = ("tests/extension/", "tests/record/mlflow/")
# A process that has imported an engine, from which ranks are forked.
RANKS = "observe: Callable"


class Sharing(LoadFileScheduling):
    """The tests of a file go to one worker, as do those of all files that share something."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(super()._split_scope(nodeid))


@cache
def scope_of(file: str) -> str:
    """Return what files that share a worker have in common: a folder, the ranks of a folder, else the file alone.

    All ranks would be one worker's, longer than what is left for each of the others.
    """
    for folder in FOLDERS:
        if file.startswith(folder):
            return folder
    return f"{RANKS} {Path(file).parent}" if RANKS in Path(file).read_text() else file
