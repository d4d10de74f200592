"""A metric of training, for the driver: it is computed after a run from what the ranks wrote."""

from __future__ import annotations

from llmexp.extend import Measurement, RunConstants, Shown, TrainingRepeat, duration_s, metric


# The unit; which direction is better ("higher", "lower" or "", where none is); its column in the table, if it has one:
# heading, format of the mean, and when the column goes where there is no room (0: never). CSV, MLflow, llmexp.load and
# `compare --metric` have it in any case, by its entry point's name.
@metric("s", "lower", Shown("1st step s", ".3f", dispensable=1))
def first_step_time_s(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Wall time of the first step, which compiles and allocates, on the slowest rank."""
    # The docstring is the legend. `repeat.warmup` and `repeat.measured` hold a sample of each rank for each step,
    # `repeat.ranks` their summaries; `facts` what the plan knows: number of ranks, FLOPs, peak, price.
    # None where the run lacks the data, as here without warm-up. Measurement(value, values of steps) has deviations.
    return Measurement(max(map(duration_s, repeat.warmup[0]))) if repeat.warmup else None
