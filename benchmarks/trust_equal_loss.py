"""How often the verdicts at equal loss are wrong, over simulated losses whose truth is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.figure import Figure
from benchmarks.rates import rate
from llmexp.training.analysis.equal_loss import MARGIN, SeedsToLoss, cost_to, default_loss, verdicts_on
from llmexp.training.convergence import LossCurve

CHOICES, STEPS, TOKENS_A_STEP = 4, 96, 512
# Deviations of a step's loss, by the texts that all runs of a seed read, and by what each run computes of them.
OF_TEXTS, OF_STEPS = 0.12, 0.02
OF_SPEEDS = 0.03
MORE = 0.25


@dataclass(frozen=True)
class LossSeeds:
    """Choices beside a baseline, with so many seeds each.

    `scatter` is the deviation, as a share, of the tokens that runs of one choice take to the same loss; that of the
    first choice is `first_scatter`. The first choice, or all of them, truly takes `more` seconds, as a share.
    """

    seeds: int
    scatter: float
    first_scatter: float | None = None
    more: float = 0.0
    all_more: bool = False

    def answers(self, draw: Random) -> list[str]:
        """Return the verdict on the seconds of each choice."""
        texts = [[draw.gauss(0, OF_TEXTS) for _ in range(STEPS)] for _ in range(self.seeds)]
        baselines = [self._curve(draw, noise, self.scatter, 0.0) for noise in texts]
        loss = default_loss(baselines)
        assert loss is not None
        choices = [[self._of_choice(draw, noise, place) for noise in texts] for place in range(CHOICES)]
        costs = [cost_to(curve, loss) for curve in baselines]
        found = [SeedsToLoss([cost_to(curve, loss) for curve in curves], costs) for curves in choices]
        return [verdict.answer for verdict in verdicts_on(found, "seconds")]

    def _of_choice(self, draw: Random, texts: Sequence[float], place: int) -> LossCurve:
        scatter = self.scatter if place or self.first_scatter is None else self.first_scatter
        return self._curve(draw, texts, scatter, self.more if self.all_more or not place else 0.0)

    def _curve(self, draw: Random, texts: Sequence[float], scatter: float, more: float) -> LossCurve:
        """Return a loss that falls as those of the tiny model do, from 5.4 to some 2.7."""
        pace = 1 + draw.gauss(0, scatter)
        losses = [
            2.0 + 3.4 * (1 + pace * step / 6) ** -0.55 + common + draw.gauss(0, OF_STEPS)
            for step, common in enumerate(texts)
        ]
        tokens = [TOKENS_A_STEP * step for step in range(1, STEPS + 1)]
        return LossCurve(tokens, losses, 0.1 * (1 + more) * (1 + draw.gauss(0, OF_SPEEDS)))


def equal_loss_verdicts(tries: int) -> Iterator[Figure]:
    """Yield all rates in percent: equal choices told apart, more seconds seen and called the same."""
    for seeds in (2, 3, 5, 8):
        for scatter in (0.02, 0.06):
            case = f"{CHOICES} choices, {seeds} seeds, deviation {scatter:.0%}"
            yield _told_apart(case, LossSeeds(seeds, scatter), tries)
        case = f"{CHOICES} choices, {seeds} seeds, deviation 6 %"
        yield _told_apart(f"{case}, of the first 18 %", LossSeeds(seeds, 0.06, 0.18), tries)
        one = _tables(LossSeeds(seeds, 0.06, more=MORE), tries)
        seen = sum(answers[0] == "higher" for answers in one)
        yield rate(f"one takes {MORE:.0%} longer, called slower: {case}", seen, tries)
        edge = _tables(LossSeeds(seeds, 0.02, more=MARGIN, all_more=True), tries)
        same = sum(answers.count("within") for answers in edge)
        yield rate(f"{MARGIN:.0%} longer, called the same: {case[:-3]}2 %", same, CHOICES * tries, limit=5)


def _told_apart(case: str, truth: LossSeeds, tries: int) -> Figure:
    apart = sum(bool({"lower", "higher"} & set(answers)) for answers in _tables(truth, tries))
    return rate(f"equal choices, any told apart: {case}", apart, tries, limit=5)


def _tables(truth: LossSeeds, tries: int) -> list[list[str]]:
    draw = Random(0)
    return [truth.answers(draw) for _ in range(tries)]
