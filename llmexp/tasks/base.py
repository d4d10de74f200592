"""The interface of a task: the types of its configuration and plan, and how a run is planned, measured and judged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from llmexp.analysis.contention import Machine
from llmexp.analysis.metric import Metrics
from llmexp.analysis.quantity import Measurement
from llmexp.analysis.sameness import DoneTraining
from llmexp.analysis.stability import AnyRepeat, judge
from llmexp.analysis.window import read_repeat
from llmexp.errors import ConfigError
from llmexp.record.digits import rounded
from llmexp.record.flat import one_level
from llmexp.record.folder import RunFolder
from llmexp.record.memory import Fit
from llmexp.record.plan import RunPlan
from llmexp.record.result import Doubt, Metric, ResultPoint, RunResult, Stability
from llmexp.record.samples import RankSummary, Sample
from llmexp.record.spans import TimeSpan
from llmexp.report.row import Row
from llmexp.report.section import ReportSection
from llmexp.schema import MadeModel, RunConfig

C = TypeVar("C", bound=RunConfig)
P = TypeVar("P", bound=RunPlan)
# Plans a command line with these words by key besides; None where they cannot be combined with it.
PlanWith = Callable[[Mapping[str, str]], P | None]


def source_words(config: RunConfig) -> str:
    """Say which run of the sweep makes the model that this one starts from; an empty string where none does."""
    model = config.starts_from
    return f"the model that run {model.name} leaves in {model.path}" if model else ""


class TaskPlanning(ABC, Generic[C, P]):
    """What a task decides before a run starts: `llmexp plan` and sweeps ask for it."""

    name: str
    config_type: ClassVar[type[RunConfig]]
    """The sections of the task's configuration: those of RunConfig and its own."""
    plan_type: ClassVar[type[RunPlan]]
    """The type of plan.json; its `rate` names the metric that verdicts, comparisons and costs are based on."""
    pilot_source: ClassVar[str] = "pilot"
    """The source of a cost that goes by a run's own pilot, which says on which side it errs."""
    brief: ClassVar[tuple[str, ...]] = ()
    """The labels of `describe` that a short plan shows, a line each: what is measured; all where none is named."""

    @abstractmethod
    def plan(self, config: C) -> P:
        """Decide everything before a run starts.

        The plan says why a run is skipped. Raises ConfigError for a configuration that cannot run.
        """

    def describe(self, plan: P) -> dict[str, str]:
        """Return what `llmexp plan` prints beyond what all plans have, by label; empty values are left out."""
        return {}

    def made_model(self, plan: P) -> MadeModel | None:
        """Return the model that the run leaves, which other runs of its sweep can start from; None if it leaves none.

        Only what is certain before it starts is said.
        """
        return None

    def fit(self, plan: P) -> Fit | None:
        """Return how the run is expected to fit its devices; None where that is not known."""
        return None

    def checkpoint_bytes(self, plan: P) -> int | None:
        """Return the bytes of a checkpoint from which a training can go on; None where that is not known."""
        return None

    def unequal_stages(self, plan: P, hardware: Sequence[str]) -> str:
        """Say how fast a pipeline is whose stages have these cards; raises ConfigError for what is no such pipeline."""
        raise ConfigError(f"--stages: applies to training only, and task={plan.config.task.name} does not")

    def trace_memory(self, plan: P) -> str:
        """Run a rank of the plan without memory, and return what would live in it as a table.

        Raises ConfigError for what cannot be traced.
        """
        raise ConfigError(f"--trace-memory: applies to training only, and task={plan.config.task.name} does not")

    def options(self, plan_with: PlanWith[P], fixed: Mapping[str, str]) -> Iterator[P]:
        """Yield the plans of what the keys that are not `fixed` leave open, without those that nobody would choose.

        Among them are the least of each kind that do not fit, so that what comes nearest can be told. Raises
        ConfigError for a task that has none.
        """
        raise ConfigError("llmexp advise: applies to training and serving only: set task=pretrain, finetune or serve")

    def fitting(self, plan: P) -> Sequence[str]:
        """Return changes, each of which makes a plan fit that does not; empty where none is known."""
        return ()

    def lifted_by(self, plan: P) -> str:
        """Say in one line what bounds a predicted plan, and by how much more of it would lift its speed."""
        return ""

    def changes_mathematics(self, plan: P) -> Sequence[str]:
        """Return, in a few words each, what the run computes otherwise than a plain one does, such as 4-bit weights."""
        return ()

    def warning(self, plan: P) -> str:
        """Return a warning to read before the run starts, such as why a precision was chosen, or an empty string."""
        return ""

    def unused_keys(self, plan: P) -> dict[str, str]:
        """Return the keys that were set but change nothing in this run, each with the reason."""
        return {}

    def predicted_outcome(self, plan: P, sweep: Path, stack: str) -> str | None:
        """Return how the run is certain to end, by runs of the same stack in the sweep's folder, or None."""
        return None

    def measured_first(self, plan: P) -> Sequence[str]:
        """Return the words of a run that must be measured before this one's speed can be predicted; none as a rule."""
        return ()

    def learn(self, outputs: Path, folders: Sequence[RunFolder]) -> None:
        """Take notice of runs of this task that have ended, for the plans of later ones."""

    def pilot(self, plan: P) -> P | None:
        """Return a run of few samples that tells how long the plan's will take; None where there is none."""
        return None

    def samples_s(self, plan: P, seen: RunResult) -> float:
        """Return the seconds that the samples of a repeat take at the rates of a pilot's result; 0 where it has none.

        Samples of which a pilot has as many as the plan may be left out of both: they count with the start-up.
        """
        rate = seen.metrics.get(plan.rate)
        return plan.samples * plan.amount / rate.mean if rate and rate.mean else 0.0


class TaskTrials(Generic[P]):
    """What a task decides while its run goes on: the driver of the run asks for it.

    Trials are short runs that settle what the plan leaves open, such as the largest batch.
    """

    def next_trial(self, plan: P, trials: Sequence[RunResult]) -> P | None:
        """Return the short run that has to be measured before the run itself can start, or None.

        `trials` are the results of those measured so far: successes, and runs that were out of memory.
        """
        return None

    def settled(self, plan: P, trials: Sequence[RunResult]) -> P:
        """Return the plan with what its trials decided."""
        return plan

    def as_it_ran(self, plan: P, earlier: RunResult) -> P:
        """Return the plan with what the run itself decided, by its result."""
        return plan

    def points_of_trials(self, trials: Sequence[RunResult]) -> list[ResultPoint]:
        """Return the account of the trials that the run's result keeps."""
        return []

    def may_end_early(self, plan: P) -> bool:
        """Tell whether the protocol lets a run end before all its repeats."""
        return False

    def is_known_enough(self, plan: P, repeats: Sequence[AnyRepeat]) -> bool:
        """Tell whether no further repeats are needed although the protocol has more."""
        return False


class TaskResults(Generic[P]):
    """What a run's samples come to: the driver asks for it when the run has ended."""

    sample_type: ClassVar[type[Sample]] = Sample
    """The type of a line of samples.<rank>.jsonl."""
    summary_type: ClassVar[type[RankSummary]] = RankSummary
    """The type of rank.<rank>.json."""
    metrics: Metrics
    """The metrics that are computed from each repeat."""

    def constants(self, plan: P) -> Any:
        """Return what the functions of the metrics get besides a repeat."""
        return plan

    def read(self, folder: Path, plan: P) -> AnyRepeat:
        """Read a repeat that ended well; raises RecordError."""
        return read_repeat(folder, plan.processes, self.sample_type, self.summary_type)

    def measure(self, plan: P, repeats: Sequence[AnyRepeat]) -> dict[str, Metric | None]:
        """Compute every metric; None where the run lacks the data.

        Raises RecordError for values that are impossible.
        """
        return self.metrics.measure(repeats, self.constants(plan))

    def rates(self, plan: P, repeats: Sequence[AnyRepeat]) -> list[Measurement]:
        """Return the rate of each repeat."""
        found = [self.metrics[plan.rate].function(repeat, self.constants(plan)) for repeat in repeats]
        return [rate for rate in found if rate]

    def judge(self, plan: P, repeats: Sequence[AnyRepeat], machines: Sequence[Machine]) -> Stability | None:
        """Judge how far the measurement can be relied on, by its rate and by what its machines say.

        None where not every repeat has the rate.
        """
        rates = self.rates(plan, repeats)
        return judge(repeats, rates, machines, plan.rate, self.doubts(repeats)) if len(rates) == len(repeats) else None

    def doubts(self, repeats: Sequence[AnyRepeat]) -> list[Doubt]:
        """Return what the task's own samples say against relying on a measurement."""
        return []

    def points(self, plan: P, repeats: Sequence[AnyRepeat]) -> list[ResultPoint]:
        """Return further results, for a run that gives several."""
        return []

    def points_until_now(self, plan: P, folder: Path) -> list[ResultPoint]:
        """Return the results that a repeat's folder holds although the repeat did not end well."""
        return []

    def remark(self, repeats: Sequence[AnyRepeat]) -> str:
        """Return what a reader must know of a success, such as that its loss diverged, or an empty string."""
        return ""

    def outcome(self, plan: P, metrics: dict[str, Metric | None]) -> str:
        """Return the outcome for the line that ends a run."""
        rate = metrics.get(plan.rate)
        return f"{rounded(rate.mean)} {plan.rate_unit}" if rate else ""


class TaskSeries(Generic[P]):
    """What a run's samples are besides metrics: the tracker and tables for notebooks ask for it."""

    level: ClassVar[str] = "steps"
    """The level of `llmexp.load` that has the task's samples, a row each; tasks may share one."""
    level_columns: ClassVar[Mapping[str, tuple[str, str]]] = {"duration_s": ("s", "wall time of the step on this rank")}
    """The unit and the meaning of columns of this level that are no fields of the sample."""

    def level_rows(self, sample: Any) -> Iterable[dict[str, Any]]:
        """Yield the rows of that level that a sample has, column by column."""
        yield {"duration_s": sample.t_end_s - sample.t_start_s} | one_level(sample.model_dump())

    def series(self, repeat: Path) -> Iterable[tuple[float, str, float]]:
        """Return what was told beside the samples of a repeat: when, in seconds since rank 0's origin, name and value.

        Raises OSError, and OddFileError where a file holds something else.
        """
        return ()

    def spans(self, repeat: Path, plan: P) -> Iterable[TimeSpan]:
        """Return some of the work of a repeat in spans of time, in seconds since rank 0's origin.

        Raises as `series` does.
        """
        return ()


class TaskReport:
    """How runs are shown: reports ask for it."""

    headlines: ClassVar[tuple[str, ...]] = ()
    """Names of the metrics that stand beside the rate where there is room for a few only, as in lists of runs."""
    curves: ClassVar[tuple[str, ...]] = ()
    """Names of the values of a sample that are plotted for each run."""
    row_type: ClassVar[type[Row]] = Row
    """The type of a run's row in a report."""
    trains: ClassVar[bool] = False
    """True where runs train a model, so that the cost of a whole training can be asked of them."""
    trained_type: ClassVar[type[DoneTraining] | None] = None
    """The type of what a row says that its run did as a training; None where runs train nothing."""
    section_type: ClassVar[type[ReportSection]] = ReportSection
    """The part of a report that shows the task's runs; tasks with the same section share a table."""

    def draw(self, row: Row, figures: Path) -> None:
        """Draw a run's own pictures into the folder of its figures, besides the curves of its samples."""


class Task(TaskPlanning[C, P], TaskTrials[P], TaskResults[P], TaskSeries[P], TaskReport):
    """A task is one thing that can be done and measured."""
