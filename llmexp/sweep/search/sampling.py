"""How Optuna chooses the points of a search, and which trials it ends early."""

from __future__ import annotations

import random
import warnings
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from llmexp.sweep.search.space import Dimension, SearchChoices, points_of, typed_number
from llmexp.sweep.search.trial import PrunerName, SamplerName

# Of a trial's steps, those in which the median does not end it: learning rates differ most at first.
_SPARED_SHARE = 0.25
Params = Mapping[str, Any]


def distribution_of(dimension: Dimension) -> BaseDistribution:
    """Return what Optuna draws a dimension's values from."""
    if isinstance(dimension, SearchChoices):
        return CategoricalDistribution(dimension.values)
    if dimension.whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log, step=dimension.step)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def typed_value(value: Any) -> str:
    """Return a value that Optuna drew as a person types it."""
    return value if isinstance(value, str) else typed_number(value)


def sampler_of(name: SamplerName, seed: int, space: Sequence[Dimension], tried: Sequence[Params]) -> BaseSampler:
    """Return who chooses the next point, after those that were tried.

    Its seed is of this trial alone, so that drivers side by side, and those that resume, do not draw alike.
    """
    drawn = random.Random(f"{seed}/{len(tried)}").randrange(2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # constant_liar, before Optuna 5
        inner = RandomSampler(drawn) if name == "random" else TPESampler(seed=drawn, constant_liar=True)
    return _Distinct(inner, space, tried, random.Random(drawn))


def pruner_of(name: PrunerName, steps: int) -> BasePruner:
    """Return who ends trials early, whose runs have so many steps."""
    if name == "median":
        return MedianPruner(n_warmup_steps=int(_SPARED_SHARE * steps))
    return HyperbandPruner(max_resource=max(1, steps)) if name == "hyperband" else NopPruner()


class _Distinct(BaseSampler):
    """A sampler that replaces a point that was tried by one that was not, where the points can be counted."""

    def __init__(
        self, inner: BaseSampler, space: Sequence[Dimension], tried: Collection[Params], draw: random.Random
    ) -> None:
        self._inner, self._tried, self._draw = inner, tried, draw
        self._distributions = {dimension.key: distribution_of(dimension) for dimension in space}
        self._left = _untried(space, tried) if points_of(space) else None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all keys, so that a point is chosen as a whole."""
        return self._distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a point."""
        found = {name: self._inner.sample_independent(study, trial, name, each) for name, each in search_space.items()}
        return self._draw.choice(self._left) if self._left and found in self._tried else found

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return one value of a point."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)


def _untried(space: Sequence[Dimension], tried: Collection[Params]) -> list[dict[str, Any]]:
    names = [dimension.key for dimension in space]
    values = [each.values if isinstance(each, SearchChoices) else each.whole_numbers for each in space]
    every = [dict(zip(names, point, strict=True)) for point in product(*values)]
    return [point for point in every if point not in tried]
