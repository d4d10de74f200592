"""The paper's claims with the checks that decide them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml

from llmexp.paper.printed.findings import published_claims
from llmexp.report.findings.claims import Claim, Undecided, claim_of
from llmexp.report.findings.rows import GPU
from llmexp.report.findings.verdict import CANNOT_TELL

_FILE = "claims.yaml"


@cache
def paper_claims() -> tuple[Claim | Undecided, ...]:
    """Return the claims of the paper in the order of findings.csv; those over runs are about GPUs."""
    text = (files(__package__) / _FILE).read_text(encoding="utf-8")
    rows = {row["id"]: row for row in yaml.safe_load(text)}
    return tuple(
        claim_of(rows[each.name] | {"statement": each.statement}, _FILE, GPU)
        if each.name in rows
        else Undecided(
            each.name,
            each.statement,
            "no table of the paper decides it" if each.verdict == CANNOT_TELL else "not evaluated yet",
        )
        for each in published_claims()
    )
