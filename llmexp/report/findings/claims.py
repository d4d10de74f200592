"""Claims as rows of YAML: published ones, and a person's own, read by the same function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmexp.errors import ConfigError, unknown
from llmexp.report.findings.formula import calculate, figures_of, names_in
from llmexp.report.findings.limits import OverRows
from llmexp.report.findings.rows import ClaimRow, atoms
from llmexp.report.findings.selection import Selection
from llmexp.report.findings.shapes import SHAPES, Check, FormulaShape
from llmexp.report.findings.verdict import CANNOT_TELL, Answer, together

_Figures = Mapping[str, tuple[ClaimRow, str]]
_OWN = ("id", "statement", "rule", "checks")


class Claim(BaseModel):
    """A claim and how it is decided; without checks no function decides it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    statement: str
    rule: Literal["mixed", "every"] = "mixed"
    checks: tuple[Check, ...] = Field(min_length=1)

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return the verdict on rows, published ones or those of runs."""
        return together([check.answer(rows) for check in self.checks], self.rule)


@dataclass(frozen=True)
class Undecided:
    """A published claim that nothing decides; `why` says whether it could be."""

    id: str
    statement: str
    why: str

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return that it cannot be told."""
        return Answer(CANNOT_TELL, self.why)


def own_claims(path: Path, codes: Sequence[str], published: tuple[ClaimRow, ...]) -> tuple[Claim, ...]:
    """Read a person's claims from a YAML file, one row or a list of them.

    `codes` are the atoms that there are, and `published` the rows whose figures a formula may name.

    Raises ConfigError, with the file, the row and what can stand there, where one is wrong.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--claims {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"--claims {path} is not YAML: {' '.join(str(error).split())}") from None
    rows = found if isinstance(found, list) else [found]
    claims, figures = tuple(claim_of(row, str(path)) for row in rows), figures_of(published)
    for claim in claims:
        _check_words(claim, f"{path}: claim {claim.id}", codes, figures)
    names = [claim.id for claim in claims]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{path}: the id {twice[0]} occurs twice")
    return claims


def claim_of(row: object, where: str, hardware: str = "") -> Claim:
    """Build a claim from a row of the file `where`, whose check may stand in it without a list.

    A check over rows that names no hardware is about `hardware`. Raises ConfigError where the row is wrong.
    """
    if not isinstance(row, Mapping) or not row.get("id"):
        raise ConfigError(f"{where}: a claim is a row with id, statement and shape, not {str(row)[:60]!r}")
    name = f"{where}: claim {row['id']}"
    checks = row.get("checks") or [{key: value for key, value in row.items() if key not in _OWN}]
    known = {key: str(row[key]) for key in ("id", "statement", "rule") if key in row}
    if "checks" in row and (extra := [key for key in row if key not in _OWN]):
        raise ConfigError(f"{name}: {extra[0]} stands beside checks: move it into each of them")
    try:
        claim = Claim.model_validate(known | {"checks": checks})
    except ValidationError as error:
        raise ConfigError(f"{name}: {_explained(error)}") from None
    return claim.model_copy(update={"checks": tuple(_on(check, hardware) for check in claim.checks)})


def _on(check: Any, hardware: str) -> Any:
    """Return the check with the class of hardware that it is about where it names none."""
    if not hardware or not isinstance(check, OverRows) or check.where.hardware:
        return check
    return check.model_copy(update={"where": check.where.model_copy(update={"hardware": (hardware,)})})


def _explained(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(
        str(part) for part in first["loc"] if part not in ("checks", *SHAPES) and not isinstance(part, int)
    )
    if first["type"].startswith("union_tag"):
        return f"unknown shape: choices are {', '.join(SHAPES)}"
    if first["type"] == "extra_forbidden":
        return f"unknown key {place}: docs/paper.md has those of each shape; shapes are {', '.join(SHAPES)}"
    return f"{place or 'row'}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def _check_words(claim: Claim, name: str, codes: Sequence[str], figures: _Figures) -> None:
    """Raise ConfigError where a check cannot decide anything: an unknown atom, no comparison, an unknown figure."""
    for check in claim.checks:
        if isinstance(check, FormulaShape):
            if missing := [each for each in names_in(check.formula) if each not in figures]:
                known = f"; one is [{next(iter(figures))}]" if figures else ""
                raise ConfigError(f"{name}: there is no figure [{missing[0]}]{known}")
            _tried(check.formula, figures, name)
            continue
        compare = getattr(check, "compare", None)
        if compare and [bool(compare.add), bool(compare.swap), bool(compare.field and compare.values)].count(True) != 1:
            raise ConfigError(f"{name}: compare has one of add: F, swap: [L, QL], field: hardware with values: [a, b]")
        if {"micro", "serve"} & set(check.where.task):  # there a method is a kind of call, or a dtype of the cache
            continue
        words = (compare.add, *(compare.swap or ())) if compare else ()
        for word in (*words, *_atoms_of(check.where), *_atoms_of(getattr(check, "winner", Selection()))):
            if word and atoms(word) and word.upper() not in codes:
                raise ConfigError(f"{name}: {unknown('atom', word, codes)}")


def _atoms_of(where: Selection) -> list[str]:
    return [atom for method in (*where.method, *where.with_any, *where.without) for atom in method.split("+")]


def _tried(formula: str, figures: _Figures, name: str) -> None:
    try:
        calculate(formula, {each: figures[each][0].values[figures[each][1]].value for each in names_in(formula)})
    except (ConfigError, ZeroDivisionError, TypeError) as error:
        raise ConfigError(f"{name}: {error}") from None
