"""The steps of a learning-rate schedule, as a plan knows them."""

from __future__ import annotations

from llmexp.errors import ConfigError
from llmexp.training.config import OptimizerConfig, TrainingConfig

# Of wsd's steps, as in arXiv 2404.06395, section 4.
_DECAYING = 10


def has_schedule(optimizer: OptimizerConfig) -> bool:
    """Tell whether the learning rate changes from step to step."""
    return optimizer.schedule != "constant" or optimizer.warmup_steps > 0


def scheduled_steps(config: TrainingConfig) -> int:
    """Return the steps that the schedule spans: those of the run, unless a number is given."""
    return config.optimizer.total_steps or config.measure.warmup_steps + config.measure.steps


def decay_steps(optimizer: OptimizerConfig, steps: int) -> int:
    """Return the last steps of wsd, in which the rate falls; a tenth of all where none are given."""
    return optimizer.decay_steps or -(-steps // _DECAYING)


def check_schedule(config: TrainingConfig) -> None:
    """Raise ConfigError for a schedule with more steps in its parts than in all."""
    chosen, steps = config.optimizer, scheduled_steps(config)
    # A run of a budget of tokens has its steps once its batch is found.
    if not has_schedule(chosen) or (config.batch.is_searched and config.measure.tokens):
        return
    if config.measure.duration_s and not chosen.total_steps:
        raise ConfigError(
            f"measure.duration_s={config.measure.duration_s:g} leaves open over how many steps the learning rate "
            "changes: set optimizer.total_steps=<steps>, or measure.tokens=<budget> instead"
        )
    falls = decay_steps(chosen, steps) if chosen.schedule == "wsd" else int(chosen.schedule != "constant")
    if chosen.warmup_steps + falls <= steps:
        return
    span = f"optimizer.total_steps={steps}" if chosen.total_steps else f"the {steps} steps of the run"
    raise ConfigError(
        f"optimizer.warmup_steps={chosen.warmup_steps} and {falls} steps in which the rate falls are more than {span}: "
        "set fewer, or set optimizer.total_steps to the steps of the whole training"
    )
