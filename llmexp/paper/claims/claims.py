"""The paper's claims with the checks that decide them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from llmexp.paper.printed.findings import published_claims
from llmexp.report.findings.claims import Claim, Undecided, claim_of
from llmexp.report.findings.rows import GPU

_FILE = "claims.yaml"


@cache
def paper_claims() -> tuple[Claim | Undecided, ...]:
    """Return the claims of the paper in the order of findings.csv; those over runs are about GPUs."""
    text = (files(__package__) / _FILE).read_text(encoding="utf-8")
    rows = {row["id"]: row for row in yaml.safe_load(text)}
    return tuple(_claim(rows[each.name] | {"statement": each.statement}) for each in published_claims())


def _claim(row: dict[str, Any]) -> Claim | Undecided:
    """Return a claim, or the reason why neither the paper's cells nor anybody's runs decide it."""
    if "why" in row:
        return Undecided(row["id"], row["statement"], row["why"])
    return claim_of(row, _FILE, GPU)
