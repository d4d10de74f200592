"""The paper's claims, and what its own tables say of each; README.md tells what the file is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from llmexp.paper.printed import read_table

# The file's words, and the words of a verdict.
_VERDICTS = {"supported": "holds", "partly": "partly", "contradicted": "fails", "not_checkable": "cannot tell"}


@dataclass(frozen=True)
class PublishedClaim:
    """A claim of the paper; `verdict` is holds, partly, fails or cannot tell, by the tables that `tables` names."""

    name: str
    section: str
    statement: str
    tables: str
    verdict: str


@cache
def published_claims() -> tuple[PublishedClaim, ...]:
    """Return all claims in the order of the file. Raises KeyError on a verdict that is none of the four."""
    return tuple(
        PublishedClaim(row["id"], row["section"], row["statement"], row["tables"], _VERDICTS[row["verdict"]])
        for row in read_table("findings")
    )
