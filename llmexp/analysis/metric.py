"""A metric is one row: its function, name, unit, which way is better, what it means, and its column in the table where it has one."""

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
    """A metric's column: its heading, how its mean times `factor` is written, and which column goes first where there is no room (0: never)."""

    header: str
    form: str = ",.1f"
    factor: float = 1.0
    dispensable: int = 0


@dataclass(frozen=True)
class MetricSpec:
    """`function` gives the metric of one repeat from that and what the plan knows; None where the run has not the data."""

    name: str
    function: Function
    unit: str
    better: Better
    help: str
    column: Shown | None = None


class Metrics(dict[str, MetricSpec]):
    """Rows by name, in the order in which a CSV has them."""

    def add(self, unit: str, better: Better = "", column: Shown | None = None) -> Callable[[F], F]:
        """Register the decorated function as the metric of its name; its docstring says what it means."""

        def register(function: F) -> F:
            self.include(
                MetricSpec(
                    function.__name__, function, unit, better, " ".join((getdoc(function) or "").split()), column
                )
            )
            return function

        return register

    def measure(self, repeats: Sequence[Repeat[Any, Any]], facts: Any) -> dict[str, Metric | None]:
        """Compute every metric over repeats; None where the run has not the data. Raises RecordError where figures cannot be."""
        return {name: over_repeats([spec.function(repeat, facts) for repeat in repeats]) for name, spec in self.items()}

    def include(self, spec: MetricSpec) -> None:
        """Register a row."""
        self[spec.name] = spec
