"""Metrics of runs whose replicas are killed and come back (engine=torchft); all other runs have none.

Goodput is `tokens_per_s` of such a run: the positions of the steps that count, each once, over the wall time from the
begin of the first measured step to the end of the last one, failures, recoveries and checkpoints included.
`measured_steps` are the committed ones.
"""

from __future__ import annotations

from statistics import fmean

from llmexp.analysis.metric import Metrics, Shown
from llmexp.analysis.quantity import Measurement
from llmexp.training.over_steps import rate_of
from llmexp.training.repeats import RunConstants, TrainingRepeat

FAILURE_METRICS = Metrics()
_metric = FAILURE_METRICS.add


@_metric("share", "higher", Shown("goodput %", ".1f", 100))
def goodput_share(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Goodput over undisturbed_tokens_per_s: what failures and checkpoints left of the run's own speed."""
    undisturbed = undisturbed_tokens_per_s(repeat, facts)
    return Measurement(rate_of(repeat, facts, "positions").value / undisturbed.value) if undisturbed else None


@_metric("tokens/s", "higher")
def undisturbed_tokens_per_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Positions of a step of all replicas over the median time of the run's own steps in which all took part.

    The time is that of the step itself, on its slowest replica; checkpoints and waits between steps are left out.
    """
    recovery = repeat.ranks[0].recovery
    if recovery is None:
        return None
    whole = max(sum(sample.positions for sample in step) for step in repeat.measured)
    return Measurement(facts.counted_share * whole / recovery.undisturbed_step_s)


@_metric("deaths", column=Shown("deaths", ".0f"))
def failures(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Replicas that died in the measured window."""
    recovery = repeat.ranks[0].recovery
    return Measurement(len(recovery.failures)) if recovery else None


@_metric("s", "lower", Shown("lost s", ".2f"))
def lost_to_failures_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Seconds lost to all failures of the window; `recovery.failures` in rank.0.json has each.

    Of one failure: from the begin of the step in which the replica died until that step was committed and all replicas
    took part again, less the time in which undisturbed steps train the tokens committed meanwhile. It ends with the
    window, or with the next death, where that comes first.
    """
    recovery = repeat.ranks[0].recovery
    return Measurement(sum(failure.lost_s for failure in recovery.failures)) if recovery else None


@_metric("s", "lower")
def lost_per_failure_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Mean of the seconds lost to a failure; None without one."""
    recovery = repeat.ranks[0].recovery
    lost = tuple(failure.lost_s for failure in recovery.failures) if recovery else ()
    return Measurement(fmean(lost), lost) if lost else None


@_metric("steps", "lower", Shown("redone steps", ".0f", dispensable=1))
def redone_steps(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Times that a measured step was begun again: after a checkpoint, or because a peer died in it."""
    recovery = repeat.ranks[0].recovery
    return Measurement(recovery.redone_steps) if recovery else None


@_metric("replicas", column=Shown("healed", ".0f", dispensable=1))
def healed_replicas(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Replicas that took weights and optimizer states from another one within the window; 0 with recovery=restart."""
    recovery = repeat.ranks[0].recovery
    return Measurement(recovery.healed) if recovery else None


@_metric("replicas", "higher", Shown("mean replicas", ".2f", dispensable=1))
def mean_replicas(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Replicas that took part in a measured step, as the mean over steps, whatever the time between them."""
    recovery = repeat.ranks[0].recovery
    return Measurement(recovery.mean_replicas) if recovery else None


@_metric("checkpoints")
def written_checkpoints(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Checkpoints that were written to the disk in the measured window."""
    recovery = repeat.ranks[0].recovery
    return Measurement(recovery.checkpoints) if recovery else None
