"""The arithmetic that turns a budget of tokens into a number of steps."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.errors import ConfigError
from llmexp.training.config import InstructionsData, TrainingConfig
from llmexp.training.plan.dims import ParallelDims


@dataclass(frozen=True)
class TokenBudget:
    """The fewest whole steps that train on `tokens`; the first `warmup_steps` of them come before the window."""

    tokens: int
    dims: ParallelDims
    micro: int
    accumulation: int
    seq_len: int
    warmup_steps: int

    @classmethod
    def of(cls, config: TrainingConfig, dims: ParallelDims) -> TokenBudget | None:
        """Return the budget of a configuration; None without measure.tokens.

        Raise ConfigError where no step is left to measure, or where the data pads its sequences.
        """
        tokens, batch = config.measure.tokens, config.batch
        if tokens is None:
            return None
        if isinstance(config.data, InstructionsData):
            raise ConfigError(
                f"measure.tokens={tokens} counts no padding, and data=instructions pads, packed or not: set data=text "
                f"or data=hf"
            )
        if config.data.pads:
            raise ConfigError(
                f"measure.tokens={tokens} leaves padding out, and data.pack=false pads by what it reads: "
                "set data.pack=true"
            )
        budget = cls(tokens, dims, batch.samples, batch.accumulation, config.data.seq_len, config.measure.warmup_steps)
        if budget.measured_steps < 1:
            least = (budget.warmup_steps + 1) * budget.step_tokens
            raise ConfigError(
                f"measure.tokens: {budget.arithmetic}, and measure.warmup_steps={budget.warmup_steps} leave "
                f"none of them to measure: set measure.tokens={least} or more, or fewer warm-up steps"
            )
        return budget

    @property
    def step_tokens(self) -> int:
        """The tokens of one step over all replicas."""
        return self.dims.dp * self.micro * self.accumulation * self.seq_len

    @property
    def steps(self) -> int:
        """The number of all steps, warm-up included."""
        return -(-self.tokens // self.step_tokens)

    @property
    def measured_steps(self) -> int:
        """The number of steps of the measured window."""
        return self.steps - self.warmup_steps

    @property
    def arithmetic(self) -> str:
        """The division of the budget into steps, in words."""
        rest = self.steps * self.step_tokens - self.tokens
        rounded = f", rounded up by {rest:,} tokens" if rest else ""
        factors = f"dp {self.dims.dp} x micro {self.micro} x accumulation {self.accumulation} x seq_len {self.seq_len}"
        steps = f"{self.steps:,} step{'s' * (self.steps > 1)}{rounded}"
        return f"{self.tokens:,} tokens / ({factors} = {self.step_tokens:,} tokens) = {steps}"


def with_steps_of_budget(config: TrainingConfig, dims: ParallelDims) -> TrainingConfig:
    """Return the configuration with measure.steps computed from measure.tokens, where that is set."""
    budget = TokenBudget.of(config, dims)
    if budget is None:
        return config
    return config.model_copy(update={"measure": config.measure.model_copy(update={"steps": budget.measured_steps})})
