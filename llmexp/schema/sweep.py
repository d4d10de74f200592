"""The sections of tracking, of the sweep that a run belongs to, and of what a sweep may cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from llmexp.schema.section import Names, PositiveFloat, Section

RunName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$",
        json_schema_extra={"kind": "a name of at most 100 letters, digits, '.', '_' and '-'"},
    ),
]


class TrackingConfig(Section):
    """The tracker that results are copied to; the run's folder always has them."""

    name: Literal["mlflow", "none"]
    also: Names = Field((), description="trackers that get each run too: tensorboard, wandb, or one of a package")
    uri: str | None = None
    experiment: str = "llmexp"
    timeout_s: PositiveFloat = 60.0
    live: bool | Literal["auto"] = Field(
        "auto",
        description=(
            "write a run's steps while it goes on; auto: where the tracker is a server and the run computes on GPUs"
        ),
    )


class SweepConfig(Section):
    """The sweep that a run belongs to; its name is its folder below outputs/."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$",
            json_schema_extra={"kind": "a folder's name of at most 200 letters, digits, '.', '_' and '-'"},
        ),
    ]
    outputs: str = "outputs"
    run_name: RunName | None = Field(
        None,
        description="names this run in its sweep, so that others start from the model that it saves: model=@NAME",
    )
    control: bool = Field(
        False,
        description=("measure one run twice, Naive if present: how far apart are two measurements of the same thing?"),
    )
    side_by_side: bool = Field(
        True, description="runs that need fewer GPUs than this machine has share it if they do not disturb each other"
    )
    pilot: bool = Field(
        True,
        description=(
            "measure a few steps or requests first, to estimate the cost of a long sweep, or one with a budget, if "
            "nothing like it has been measured"
        ),
    )


class BudgetConfig(Section):
    """The limits of a sweep's expected cost when it starts; None sets no limit."""

    device_hours: PositiveFloat | None = None
    usd: PositiveFloat | None = Field(None, description="at hardware.price_per_device_hour_usd")
    when_over: Literal["refuse", "trim"] = Field(
        "refuse", description="start nothing, or only the cheapest runs that fit"
    )

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by unit."""
        limits = {"device_hours": self.device_hours, "usd": self.usd}
        return {unit: limit for unit, limit in limits.items() if limit is not None}
