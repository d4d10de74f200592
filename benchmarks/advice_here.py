"""`python -m benchmarks.advice_here FOLDER [MODEL]` asks here whether the deciding runs hold the best option.

MODEL is `tiny` or `125m`. FOLDER has `llmexp task=micro hardware=cpu micro.ranks=1 measure.threads_per_rank=1`. All
configurations are measured into it, in turns. Truth is the processor time of their steps, which other programs change
little. Trials resample repeats and steps. One counts where its best option is among those that `llmexp advise --run`
would measure.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, median

import numpy as np

from benchmarks.prediction.cpu_runs import clocked, steps_s
from llmexp.advice.goal import Goal
from llmexp.advice.option import Option
from llmexp.advice.ranking import ranked
from llmexp.cli.deciding import FINALISTS, sweep_words
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.plan import RunPlan
from llmexp.sweep.cost import Cost
from llmexp.training.plan.training_plan import TrainingPlan

GOAL, TRIALS = Goal("tokens_per_s"), 400
# Options that are measured, in each set of trials.
COUNTS = (1, 2, 3, FINALISTS, 6)
METHODS, ENGINES = ("Naive", "F", "R", "F+R", "F+Z2+O"), ("deepspeed", "torch")
_WORK = ("data=synthetic", "data.seq_len=128", "tracking=none")
_MACHINE = ("hardware=cpu", "hardware.devices_per_node=1", "measure.threads_per_rank=1")
_QUIETLY = ("sweep.pilot=false", "measure.profile=false", "measure.order=interleaved")


@dataclass(frozen=True)
class Exhaustive:
    """All configurations of a model, and how each is measured."""

    model: str
    batches: Sequence[int]
    protocol: Sequence[str]

    @property
    def sweep(self) -> str:
        """The name of its sweep."""
        return f"exhaustive-{self.model}"

    def options(self) -> list[list[str]]:
        """Return the words of every configuration."""
        return [
            [f"method={method}", f"batch.micro={batch}", f"engine={engine}"]
            for method, batch, engine in product(METHODS, self.batches, ENGINES)
        ]

    def words(self) -> list[str]:
        """Return the words that all configurations have."""
        return [f"model={self.model}", f"sweep.name={self.sweep}", *_WORK, *_MACHINE, *self.protocol, *_QUIETLY]


MODELS = {
    "tiny": Exhaustive("tiny", (1, 4, 16), ("measure.warmup_steps=2", "measure.steps=16", "measure.repeats=4")),
    "125m": Exhaustive("125m", (1, 2, 4), ("measure.warmup_steps=1", "measure.steps=5", "measure.repeats=2")),
}


@dataclass(frozen=True)
class Truth:
    """A measured configuration: what was predicted before, and the processor time of the steps of each repeat."""

    option: Option
    steps_s: Sequence[Sequence[float]]
    took_s: float

    @property
    def rate(self) -> float:
        """Tokens/s of the whole measurement."""
        return float(self.option.plan.amount / fmean(fmean(repeat) for repeat in self.steps_s))

    def drawn(self, rng: np.random.Generator) -> float:
        """Return tokens/s of as many repeats, drawn from these, with as many of their steps."""
        repeats = [self.steps_s[place] for place in rng.integers(len(self.steps_s), size=len(self.steps_s))]
        return float(
            self.option.plan.amount / fmean(float(rng.choice(repeat, len(repeat)).mean()) for repeat in repeats)
        )


@dataclass(frozen=True)
class Trial:
    """Whether the best was among the chosen, and the speed of the best chosen one as a share of the best one's."""

    held: bool
    share: float
    cost: float
    again: bool
    """Whether a second draw of all configurations has the same best one."""


def measure(outputs: Path, exhaustive: Exhaustive) -> int:
    """Measure all configurations in turns; what has an answer is kept."""
    typed = [*exhaustive.words(), f"sweep.outputs={outputs}"]
    return clocked(sweep_words(typed, exhaustive.options()), outputs / exhaustive.sweep)


def truths(sweep: Path) -> list[Truth]:
    """Return the configurations that were measured, each with the prediction of before."""
    return [truth for run in find_runs(sweep) if (truth := _truth(run))]


def _truth(run: RunFolder) -> Truth | None:
    result, found = run.result(), steps_s(run)
    plan = RunPlan.read(run.plan_path)
    if result is None or not found or plan.predicted is None:
        return None
    return Truth(Option(Cost(plan, None, "predicted")), found, result.held_s or 0.0)


def chosen_of(measured: Sequence[Truth], count: int) -> set[str]:
    """Return the ids of those that would be measured, or of the first one where predictions leave nothing open."""
    ranking = ranked([truth.option for truth in measured], GOAL)
    return {option.plan.id for option in ranking.deciding(count) or ranking.undecided}


def trial(measured: Sequence[Truth], rng: np.random.Generator, chosen: Collection[str]) -> Trial:
    """Draw what was measured anew, and look whether the best one is among those with these ids."""
    drawn = {truth.option.plan.id: truth.drawn(rng) for truth in measured}
    second = {truth.option.plan.id: truth.drawn(rng) for truth in measured}
    best, best_again = (max(of_all, key=of_all.__getitem__) for of_all in (drawn, second))
    share = max(drawn[name] for name in chosen) / drawn[best]
    took = {truth.option.plan.id: truth.took_s for truth in measured}
    return Trial(best in chosen, share, sum(took[name] for name in chosen) / sum(took.values()), best == best_again)


def main(words: Sequence[str]) -> None:
    """Measure what is missing, and print each configuration and the trials."""
    outputs, exhaustive = Path(words[0]), MODELS[words[1] if words[1:] else "tiny"]
    measure(outputs, exhaustive)
    measured = sorted(truths(outputs / exhaustive.sweep), key=lambda truth: -truth.rate)
    chosen = chosen_of(measured, FINALISTS)
    for place, truth in enumerate(measured, 1):
        print(_line(place, truth, truth.option.plan.id in chosen))
    spread = [max(rates) / min(rates) - 1 for truth in measured if (rates := [fmean(each) for each in truth.steps_s])]
    print(f"repeats of a configuration differ by {median(spread):.0%} in the median, by {max(spread):.0%} at most")
    for count in COUNTS:
        fastest = {truth.option.plan.id for truth in measured[:count]}
        print(_told(f"{count} measured of {len(measured)}", _trials(measured, chosen_of(measured, count))))
        print(_told("  as many, chosen in hindsight", _trials(measured, fastest)))
    print(_told("options drawn too", [_of_some(measured, seed) for seed in range(TRIALS)]))


def _trials(measured: Sequence[Truth], chosen: Collection[str]) -> list[Trial]:
    return [trial(measured, np.random.default_rng(seed), chosen) for seed in range(TRIALS)]


def _of_some(measured: Sequence[Truth], seed: int) -> Trial:
    """Return a trial of as many options, drawn from these: some are missing, and the choice is another one."""
    rng = np.random.default_rng(seed)
    places = sorted({int(place) for place in rng.integers(len(measured), size=len(measured))})
    some = [measured[place] for place in places]
    return trial(some, rng, chosen_of(some, FINALISTS))


def _told(name: str, trials: Sequence[Trial]) -> str:
    held, shares = sum(one.held for one in trials), [one.share for one in trials]
    took, again = fmean(one.cost for one in trials), sum(one.again for one in trials)
    return (
        f"{name}: the best is among them in {held} of {len(trials)}; the best of them has {median(shares):.1%} of its "
        f"speed in the median, {min(shares):.1%} at least; they take {took:.1%} of the time; "
        f"all measured twice have the same best in {again}"
    )


def _line(place: int, truth: Truth, chosen: bool) -> str:
    option = truth.option
    of_each = " ".join(f"{option.plan.amount / fmean(repeat):7,.0f}" for repeat in truth.steps_s)
    plan = option.plan
    assert isinstance(plan, TrainingPlan)
    words = f"{plan.method:7} batch {plan.batch.micro:2} {plan.config.engine.name:9}"
    low, high = option.interval
    predicted = f"predicted {option.rate:7,.0f} ({low:,.0f} to {high:,.0f})"
    return f"{place:2} {words} {truth.rate:7,.0f} tokens/s (repeats {of_each}) {predicted}{' chosen' * chosen}"


if __name__ == "__main__":
    main(sys.argv[1:])
