"""A run of few steps that keeps nothing: a trial of a batch, or a pilot of a sweep."""

from __future__ import annotations

from llmexp.tasks.resolve import resolve
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.rate_schedule import has_schedule, scheduled_steps
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.planning import training_engine

# The second repeat starts as all later ones do: from a warm disk, and with the kernels that the first one compiled.
PILOT_WARMUP_STEPS, PILOT_STEPS, PILOT_REPEATS = 1, 2, 2


def shortened(config: TrainingConfig, warmup_steps: int, steps: int, **measure: object) -> TrainingConfig:
    """Return the configuration with one repeat of at most so many steps, which leaves no weights and no trace.

    `measure` are further changes to the protocol.
    """
    asked = config.measure
    shorter = {
        "warmup_steps": min(warmup_steps, asked.warmup_steps),
        "steps": min(steps, asked.steps),
        "repeats": 1,
        "tokens": None,
        "duration_s": None,
        "stop_at_interval_share": None,
        "profile": False,
        **measure,
    }
    # The rates are those of the first steps of the whole run.
    spanning = {"total_steps": scheduled_steps(config)} if has_schedule(config.optimizer) else {}
    keeping_nothing = {
        "optimizer": config.optimizer.model_copy(update=spanning),
        "measure": asked.model_copy(update=shorter),
        "engine": config.engine.model_copy(
            update={"options": training_engine(config).undisturbed(config.engine.options)}
        ),
        "task": config.task.model_copy(update={"save_model": False}),
        "adapter": config.adapter.model_copy(update={"save": False}),
    }
    return config.model_copy(update=keeping_nothing)


def pilot(plan: TrainingPlan) -> TrainingPlan | None:
    """Return a run of twice three steps that says how long the plan's steps take, and what else a repeat does.

    None where these steps would not tell: their length grows, a batch is searched for, or a program of your own decides
    how many there are. None too where several machines would have to meet.
    """
    config = plan.config
    if not plan.amount or plan.program or config.data.seq_len_schedule or config.hardware.nodes > 1:
        return None
    protocol = {"repeats": PILOT_REPEATS, "profile": config.measure.profile, "order": "run_by_run"}
    short = shortened(config, PILOT_WARMUP_STEPS, PILOT_STEPS, **protocol)
    found = resolve(short)
    assert isinstance(found, TrainingPlan)
    return found.model_copy(update={"label": "pilot"})
