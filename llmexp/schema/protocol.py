"""What is measured, where that is recorded, and what it may cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from llmexp.schema.section import PositiveFloat, PositiveInt, Section


class MeasureConfig(Section):
    """The protocol: steps to warm up and to measure, fresh-process repeats, limits."""

    name: str
    warmup_steps: PositiveInt
    steps: PositiveInt
    repeats: PositiveInt
    tokens: PositiveInt | None = Field(
        None, description="train each repeat on so many, warm-up included, and report how its loss fell; decides `steps`. None: no such budget"
    )
    stop_at_interval_share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="end a repeat before all steps, and the run before all repeats, once half the 95 % interval of tokens_per_s, over that repeat's "
        "steps or over the repeats, is less than this share of it; None: all steps of all repeats",
    )
    min_steps: PositiveInt = Field(40, description="measured before the interval may end a repeat; 40 are the 10 batches of 4 that it is drawn from")
    profile: bool = Field(description="trace a few more steps after the last repeat's measured window")
    profile_steps: PositiveInt = 2
    phases: bool = Field(True, description="time forward, backward and optimizer apart")
    timeout_s: PositiveFloat
    no_progress_timeout_s: PositiveFloat
    threads_per_rank: PositiveInt | None = Field(None, description="None: the node's cores shared out; on cuda your own OMP_NUM_THREADS comes first")

    @model_validator(mode="after")
    def _one_end(self) -> MeasureConfig:
        if self.tokens and self.stop_at_interval_share:
            raise ValueError(
                f"measure.tokens={self.tokens} says where a run ends, and measure.stop_at_interval_share={self.stop_at_interval_share} might end it "
                "before: leave one of them out"
            )
        return self


class TrackingConfig(Section):
    """Where results are copied to after each run; the run's folder always has them."""

    name: Literal["mlflow", "none"]
    uri: str | None = None
    experiment: str = "llmexp"
    timeout_s: PositiveFloat = 60.0


class SweepConfig(Section):
    """The sweep that a run belongs to; its name is its folder below outputs/."""

    name: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", json_schema_extra={"kind": "a folder's name of letters, digits, '.', '_' and '-'"})
    ]
    outputs: str = "outputs"
    control: bool = Field(False, description="measure one run twice, Naive if it is there: how far apart are two measurements of the same thing?")
    side_by_side: bool = Field(True, description="runs that need fewer GPUs than this machine has share it where that disturbs none")


class BudgetConfig(Section):
    """What a sweep may be expected to cost when it starts; None: any amount."""

    device_hours: PositiveFloat | None = None
    usd: PositiveFloat | None = Field(None, description="at hardware.price_per_device_hour_usd")
    when_over: Literal["refuse", "trim"] = Field("refuse", description="start nothing; or only the cheapest runs that it allows")
