"""The interface of a published reference, known by its name in `llmexp.registry`."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, ClassVar

from llmexp.errors import ConfigError
from llmexp.record.plan import RunPlan
from llmexp.report.references.beside import Beside
from llmexp.report.references.view import View

if TYPE_CHECKING:
    from llmexp.report.findings.claims import Claim, Undecided
    from llmexp.report.findings.rows import ClaimRow
    from llmexp.report.row import Row
    from llmexp.report.section import ReportSection


class Reference:
    """Published figures that plans and runs are compared with; a method that is not overridden has none.

    It is asked whenever something is planned or shown, so its methods import what they need.
    """

    name: ClassVar[str]
    """Its word in `llmexp report <name>`, and the folder of what `--into` leaves."""
    title: ClassVar[str]
    """What sentences call it, such as 'the survey'."""
    heading: ClassVar[str]
    """The title of its page."""
    view_names: ClassVar[Sequence[str]] = ()
    """The names of its tables and figures in its order."""
    example: ClassVar[str] = ""
    """The name of one of its tables that has printed values, for error messages."""
    first_runs: ClassVar[str] = ""
    """The command that makes the runs of this table, in words, for error messages."""

    def published_rate(self, plan: RunPlan) -> float | None:
        """Return the rate that was published for this very run, in the plan's unit; None where none was."""
        return None

    def published_speed(self, plan: RunPlan) -> tuple[float, str] | None:
        """Return the rate of one device that was published nearest to the run, and whose it is; None without any."""
        return None

    def beside(self, section: ReportSection) -> Beside:
        """Return what stands beside the runs of a section."""
        return Beside()

    def of_all_runs(self, rows: Sequence[Row], asked: Container[str]) -> Sequence[View]:
        """Return tables that the runs of all tasks answer together, and that stand only where they are asked for."""
        return ()

    def view_named(self, word: str) -> str | None:
        """Return the name of the table or figure that a word means; None where it means none of them."""
        return word if word in self.view_names else None

    def as_published(self, view: str) -> View:
        """Return a table as it was published, without runs; raises ConfigError where it has no values."""
        raise ConfigError(f"{view} has no published values, and no run here matches it")

    def claims(self) -> Sequence[Claim | Undecided]:
        """Return the claims about runs that were published with it."""
        return ()

    def claim_rows(self) -> Sequence[ClaimRow]:
        """Return its figures as the rows that claims are decided by."""
        return ()
