"""A metric is one row: its function, name, unit, better direction, meaning, and its column in the table if any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import Any, Literal, TypeVar

from llmexp.analysis.quantity import Measurement, over_repeats
from llmexp.analysis.window import Repeat
from llmexp.record.result import Metric

Function = Callable[[Repeat[Any, Any], Any], Measurement | None]
F = TypeVar("F", bound=Callable[..., Measurement | None])
Better = Literal["higher", "lower", ""]


@dataclass(frozen=True)
class Shown:
    """A metric's column: its heading, the format of its mean times `factor`, and its place in the order of dropping.

    Where there is no room, columns go in the order of `dispensable`; 0 always stays.
    """

    header: str
    form: str = ",.1f"
    factor: float = 1.0
    dispensable: int = 0


@dataclass(frozen=True)
class MetricSpec:
    """A metric; `function` computes it from one repeat and the plan's constants, or returns None without the data.

    `help` is one sentence, for a table's legend. `details` are for the reference.
    """

    name: str
    function: Function
    unit: str
    better: Better
    help: str
    column: Shown | None = None
    details: str = ""


def metric(
    unit: str, better: Better = "", column: Shown | None = None
) -> Callable[[Callable[..., Measurement | None]], MetricSpec]:
    """Make the decorated function the metric of its name, and its docstring's paragraphs the help and the details."""

    def made(function: Callable[..., Measurement | None]) -> MetricSpec:
        help, _, details = (getdoc(function) or "").partition("\n\n")
        return MetricSpec(function.__name__, function, unit, better, _one_line(help), column, _one_line(details))

    return made


def _one_line(text: str) -> str:
    return " ".join(text.split())


class Metrics(dict[str, MetricSpec]):
    """The metrics by name, in the order of the CSV's columns."""

    def add(self, unit: str, better: Better = "", column: Shown | None = None) -> Callable[[F], F]:
        """Register the decorated function as the metric of its name; its docstring becomes the help text."""

        def register(function: F) -> F:
            self.include(metric(unit, better, column)(function))
            return function

        return register

    def measure(self, repeats: Sequence[Repeat[Any, Any]], constants: Any) -> dict[str, Metric | None]:
        """Compute every metric over repeats; None where the run lacks the data.

        Raises RecordError for values that are impossible.
        """
        return {
            name: over_repeats([spec.function(repeat, constants) for repeat in repeats]) for name, spec in self.items()
        }

    def include(self, spec: MetricSpec) -> None:
        """Register a metric."""
        self[spec.name] = spec
