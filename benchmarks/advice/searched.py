"""What advice finds for the model, the machine and the batch of a published run, beside the run's own plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

from benchmarks.prediction.published_batches import planned_as_run
from benchmarks.prediction.published_plans import words_and_assumptions
from benchmarks.prediction.published_rows import Row
from llmexp.cli.arguments import run_parser
from llmexp.cli.open_plans import open_plans
from llmexp.errors import ConfigError
from llmexp.launch.preflight import certain_skip
from llmexp.registry import get_task
from llmexp.training.advice.mathematics import changes_of
from llmexp.training.advice.options import GLOBAL
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict import predict

# What a search is for: how a run is cut, and how much of it a pass takes.
_LEFT_OPEN = ("parallelism.", "batch.", "method=", "memory.recompute_layers=")
FIRST, NEAR = 3, 0.03
Degrees = tuple[int, int, int, int, int, int]


@dataclass(frozen=True)
class Searched:
    """A published run, its plan, and the plans that advice prefers for the same training, the fastest first."""

    row: Row
    plan: TrainingPlan | None
    ours: Sequence[TrainingPlan]
    refused: str = ""
    """Why there is no plan, or nothing to choose from."""
    seconds: float = 0.0
    """Processor time of the search."""

    @property
    def fits(self) -> str:
        """What the published plan says of its memory."""
        fit = fit_of(self.plan, self.plan.batch.micro) if self.plan else None
        return fit.verdict if fit else ""

    @property
    def layouts(self) -> list[TrainingPlan]:
        """The fastest plan of each layout."""
        fastest = {degrees_of(plan): plan for plan in reversed(self.ours)}
        return sorted(fastest.values(), key=lambda plan: -rate_of(plan))

    @property
    def place(self) -> int | None:
        """The place of the published layout among those that advice found; None where it is not among them."""
        if self.plan is None:
            return None
        found = [degrees_of(plan) for plan in self.layouts]
        return found.index(degrees_of(self.plan)) + 1 if degrees_of(self.plan) in found else None

    @property
    def of_first(self) -> float | None:
        """The predicted speed of the published plan as a share of our first one's."""
        return rate_of(self.plan) / rate_of(self.ours[0]) if self.plan and self.ours else None

    @property
    def is_found(self) -> bool:
        """Tell whether the published layout is among the first three, or fits and is predicted as fast as the third."""
        if self.plan is None or not self.ours:
            return False
        last = self.layouts[:FIRST][-1]
        as_fast = self.fits != "no" and rate_of(self.plan) >= rate_of(last) * (1 - NEAR)
        return as_fast or (self.place is not None and self.place <= FIRST)

    @property
    def is_beaten(self) -> bool:
        """Tell whether our first one is predicted to be at least as fast as the published plan."""
        return self.of_first is not None and self.of_first <= 1 + NEAR


def searched(row: Row, fixed: Sequence[str] = (), *, any_engine: bool = False) -> Searched:
    """Search for the model, machine, precision and samples of a step of a published run."""
    published = planned_as_run(row)
    open_ = (*_LEFT_OPEN, *(["engine="] if any_engine else []))
    words = [word for word in words_and_assumptions(row)[0] if not word.startswith(open_)]
    begin = process_time()
    try:
        ours = fitting([*words, *fixed], row.samples)
    except ConfigError as error:
        return Searched(row, published.plan, (), str(error), process_time() - begin)
    seconds = process_time() - begin
    kept = [plan for plan in ours if published.plan is None or same_mathematics(plan, published.plan)]
    return Searched(row, published.plan, sorted(kept, key=lambda one: -rate_of(one)), published.refused, seconds)


def fitting(words: Sequence[str], samples: int | None) -> list[TrainingPlan]:
    """Return the options of advice that may fit, also those that another one makes useless."""
    batch = {} if samples is None else {GLOBAL: str(samples)}
    found: list[TrainingPlan] = []
    for choice in open_plans(run_parser().parse_intermixed_args(words)):
        options = get_task(choice.typed.config.task.name).options(choice.plan_with, choice.fixed | batch)
        found += [plan for plan in options if isinstance(plan, TrainingPlan) and _may_run(plan)]
    return found


def _may_run(plan: TrainingPlan) -> bool:
    fit = fit_of(plan, plan.batch.micro)
    return certain_skip(plan) is None and (fit is None or fit.verdict != "no")


def same_mathematics(plan: TrainingPlan, other: TrainingPlan) -> bool:
    """Tell whether two plans compute with the same precision, adapters and moments."""
    return list(changes_of(plan)) == list(changes_of(other))


def rate_of(plan: TrainingPlan) -> float:
    """Return the predicted tokens/s of a plan; 0 without a prediction."""
    prediction = predict(plan)
    return prediction.rate if prediction else 0.0


def degrees_of(plan: TrainingPlan) -> Degrees:
    """Return how a plan is cut."""
    dims = plan.dims
    return dims.dp, dims.tp, dims.pp, dims.cp, dims.ep, dims.expert_tensor
