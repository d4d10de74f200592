"""Of many trials, those that somebody might choose: no other is as good on as few cards with as many bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from llmexp.serving.advice.trials import ServedTrial

# A gain below this share is not worth another setting, and far within the error of predictions.
WORTH = 0.01

Gain = Callable[[ServedTrial], float]
"""What is more the better of a trial, of trials on as many cards."""


def front(trials: Iterable[ServedTrial], gain: Gain) -> list[ServedTrial]:
    """Return trials from few cards on, without those that gain nothing by more cards, fewer bits or more settings."""
    kept: list[ServedTrial] = []
    for trial in sorted(trials, key=_plainness):
        if not any(_is_enough(other, trial, gain, 1 - WORTH) for other in kept):
            kept.append(trial)
    return kept


def _plainness(trial: ServedTrial) -> tuple[int, int, int]:
    """Order trials from few cards, many bits and few settings on."""
    return trial.devices, -sum(trial.bits), len(trial.settings)


def _is_enough(one: ServedTrial, other: ServedTrial, gain: Gain, share: float) -> bool:
    """Tell whether one gains that share of the other on at most as many cards, with at least as many bits."""
    has_bits = all(mine >= its for mine, its in zip(one.bits, other.bits, strict=True))
    return has_bits and one.devices <= other.devices and gain(one) >= share * gain(other)


def is_beaten(trial: ServedTrial, others: Sequence[ServedTrial], gain: Gain) -> bool:
    """Tell whether one of others is better on at most as many cards, with at least as many bits."""
    return any(_is_enough(other, trial, gain, 1 + WORTH) for other in others if other is not trial)
