"""What a task is to the rest of llmexp: the types of its configuration and plan, and how a run is planned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from llmexp.analysis.metric import Metrics
from llmexp.analysis.quantity import Measurement
from llmexp.analysis.window import Repeat, read_repeat
from llmexp.record.plan import RunPlan
from llmexp.record.result import Metric, ResultPoint
from llmexp.record.samples import RankSummary, Sample
from llmexp.report.row import Row
from llmexp.report.section import Section
from llmexp.schema import RunConfig

C = TypeVar("C", bound=RunConfig)
P = TypeVar("P", bound=RunPlan)
AnyRepeat = Repeat[Any, Any]


class Task(ABC, Generic[C, P]):
    """One thing that can be done and measured."""

    name: str
    config_type: ClassVar[type[RunConfig]]
    """Its sections: those of RunConfig and its own."""
    plan_type: ClassVar[type[RunPlan]]
    """What plan.json holds; its `rate` is the metric that verdicts, comparisons and costs go by."""
    sample_type: ClassVar[type[Sample]] = Sample
    """A line of samples.<rank>.jsonl."""
    summary_type: ClassVar[type[RankSummary]] = RankSummary
    """rank.<rank>.json."""
    metrics: ClassVar[Metrics]
    """What is computed from each repeat."""
    curves: ClassVar[tuple[str, ...]] = ()
    """Names of a sample's values that are drawn for each run."""
    row_type: ClassVar[type[Row]] = Row
    """A run in a report."""
    section_type: ClassVar[type[Section]] = Section
    """The part of a report that its runs are in; tasks that share one stand in one table."""

    @abstractmethod
    def plan(self, config: C) -> P:
        """Decide everything before a run starts; raises ConfigError for what cannot be. What makes a run skipped is said in the plan."""

    def describe(self, plan: P) -> dict[str, str]:
        """What `llmexp plan` says of it besides what all plans have, by label; empty values are left out."""
        return {}

    def warning(self, plan: P) -> str:
        """What should be known before the run starts, such as what a precision was chosen for; empty where nothing should."""
        return ""

    def idle_keys(self, plan: P) -> dict[str, str]:
        """Keys that were set and change nothing in this run, each with the reason."""
        return {}

    def facts(self, plan: P) -> Any:
        """What the functions of the metrics get beside a repeat."""
        return plan

    def read(self, folder: Path, plan: P) -> AnyRepeat:
        """Read a repeat that ended well; raises RecordError."""
        return read_repeat(folder, plan.processes, self.sample_type, self.summary_type)

    def measure(self, plan: P, repeats: Sequence[AnyRepeat]) -> dict[str, Metric | None]:
        """Compute every metric; None where the run has not the data. Raises RecordError where figures cannot be."""
        return self.metrics.measure(repeats, self.facts(plan))

    def rates(self, plan: P, repeats: Sequence[AnyRepeat]) -> list[Measurement]:
        """The rate of each repeat."""
        found = [self.metrics[plan.rate].function(repeat, self.facts(plan)) for repeat in repeats]
        return [rate for rate in found if rate]

    def points(self, plan: P, repeats: Sequence[AnyRepeat]) -> list[ResultPoint]:
        """Further answers, where a run gives several."""
        return []

    def against(self, repeats: Sequence[AnyRepeat]) -> list[str]:
        """What its own samples have against relying on a measurement, in words."""
        return []

    def remark(self, repeats: Sequence[AnyRepeat]) -> str:
        """What must be said of a success, such as that its loss diverged; empty where nothing must."""
        return ""

    def outcome(self, plan: P, metrics: dict[str, Metric | None]) -> str:
        """What came out, for the line that ends a run."""
        rate = metrics.get(plan.rate)
        return f"{rate.mean:,.1f} {plan.rate_unit}" if rate else ""

    def may_end_early(self, plan: P) -> bool:
        """Whether the protocol lets a run end before all its repeats."""
        return False

    def is_known_enough(self, plan: P, repeats: Sequence[AnyRepeat]) -> bool:
        """Whether no further repeats are needed, though the protocol has more."""
        return False

    def foretold(self, plan: P, sweep: Path, stack: str) -> str | None:
        """Say how the run would end, where that is certain by runs of the same stack in the sweep's folder, or None."""
        return None

    def published_rate(self, plan: P) -> float | None:
        """The rate that somebody has published for the same; None where nobody did."""
        return None
