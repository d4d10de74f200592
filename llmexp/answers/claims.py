"""Claims with their verdicts on runs and on published figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from llmexp.answers.versioned import Answer, Part, SchemaName
from llmexp.report.findings import verdict
from llmexp.report.findings.rows import doubtful
from llmexp.report.findings.table import FindingLine
from llmexp.report.references.reference import Reference
from llmexp.version import __version__


class FindingsSchema(SchemaName):
    """The schema of this answer."""

    name: Literal["llmexp.findings"] = "llmexp.findings"
    version: Literal[1] = 1


class ClaimVerdict(Part):
    """Whether a claim holds on one set of figures."""

    verdict: Literal["holds", "partly", "fails", "cannot tell"]
    numbers: str = Field(description="what the verdict rests on, in words; or why there is none")
    doubtful: list[str] = Field(description="names of the doubtful figures among them")


class DecidedClaim(Part):
    """A claim of a reference, or of your own, on your runs and on the reference's figures."""

    id: str
    statement: str
    reference: str = Field(description="whose figures `published` is on")
    yours: ClaimVerdict
    published: ClaimVerdict


class ClaimsDecided(Answer):
    """What `llmexp report findings --json` prints."""

    schema_name: FindingsSchema = Field(FindingsSchema(), alias="schema")
    written_by: str = Field(__version__, description="llmexp's version")
    claims: list[DecidedClaim]
    unreadable: list[str] = Field(description="folders that could not be read, each with the reason")


def claims_decided(
    found: Sequence[tuple[Reference, Sequence[FindingLine]]], unreadable: Sequence[str]
) -> ClaimsDecided:
    """Return the answer about the claims of each reference."""
    return ClaimsDecided(
        claims=[_claim(line, reference) for reference, lines in found for line in lines], unreadable=list(unreadable)
    )


def _claim(line: FindingLine, reference: Reference) -> DecidedClaim:
    return DecidedClaim(
        id=line.claim.id,
        statement=line.claim.statement,
        reference=reference.name,
        yours=_verdict(line.yours),
        published=_verdict(line.published),
    )


def _verdict(answer: verdict.Answer) -> ClaimVerdict:
    return ClaimVerdict.model_validate(
        {"verdict": answer.verdict, "numbers": answer.numbers, "doubtful": list(doubtful(answer.used))}
    )
