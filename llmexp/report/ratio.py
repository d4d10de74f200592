"""The ratio of two rates as a table shows it, with its interval and the sign of a run that cannot be relied on."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.analysis.inference import Estimate, log_ratio, of_repeats
from llmexp.record.digits import three_digits
from llmexp.record.result import Metric
from llmexp.report.row import Row
from llmexp.report.signs import doubt_sign


@dataclass(frozen=True)
class RateRatio:
    """A measured row's rate over another's or over a printed figure, times `factor`.

    The factor is, for example, the number of ranks that scaling divides by.
    """

    row: Row
    over: Row | float
    factor: float = 1.0

    @property
    def value(self) -> float:
        """The ratio."""
        return (
            self.factor * _rate(self.row).mean / (self.over if isinstance(self.over, float) else _rate(self.over).mean)
        )

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval by the repeats of both; None where each has one repeat, or for a row over itself."""
        found = self._estimate
        return (
            (self.value / found.ratio * found.ratio_interval()[0], self.value / found.ratio * found.ratio_interval()[1])
            if found
            else None
        )

    def ends(self, scale: float) -> tuple[float, float] | None:
        """Return both ends of the interval times `scale`; None where there is none."""
        return (scale * self.interval[0], scale * self.interval[1]) if self.interval else None

    def cell(self, decimals: int = 2, scale: float = 1) -> str:
        """Return the value ± half its interval, with ! or ? where one of both runs has that sign."""
        found = self._estimate
        form = f",.{decimals}f"
        half = f" ± {three_digits(scale * self.value * found.half_width(), form)}" if found else ""
        return f"{three_digits(scale * self.value, form)}{half}" + f" {self.sign}" * bool(self.sign)

    @property
    def sign(self) -> str:
        """! or ? where one of both runs has that sign; empty for other runs, and for a row over itself."""
        signs = {doubt_sign(row) for row in (self.row, self.over) if isinstance(row, Row)} - {""}
        return min(signs) if signs and self.row is not self.over else ""

    @property
    def _estimate(self) -> Estimate | None:
        if isinstance(self.over, float):
            return of_repeats(_rate(self.row))
        return log_ratio(_rate(self.over), _rate(self.row)) if self.row is not self.over else None


def _rate(row: Row) -> Metric:
    assert row.rate is not None
    return row.rate
