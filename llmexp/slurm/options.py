"""The options that SLURM gets for each run: the keys of hydra.launcher with hydra/launcher=slurm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from llmexp.errors import ConfigError
from llmexp.schema.kinds import wrong_value
from llmexp.schema.section import NonNegativeInt, PositiveFloat, PositiveInt, Section, Tuple

# The formats of sbatch's --time: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
# days-hours:minutes:seconds.
SlurmTime = Annotated[
    str,
    Field(
        pattern=r"^(\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|(?i:UNLIMITED|INFINITE))$",
        json_schema_extra={"kind": "a time of sbatch's, such as 2:30:00 (hours) or 1-12 (days and hours)"},
    ),
]


class SlurmOptions(Section):
    """The options of hydra/launcher=slurm; None means the cluster's default, or what the run needs."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: PositiveInt | SlurmTime | None = Field(
        None, description="minutes, or SLURM's d-hh:mm:ss; None: measure.timeout_s and a little more"
    )
    gpus_per_node: NonNegativeInt | str | None = Field(
        None, description="None: one a rank; a type such as a100: of that type; 0: none"
    )
    cpus_per_task: PositiveInt | None = Field(
        None,
        description="cores of a run on its node; None: for each rank measure.threads_per_rank, or one, and on GPUs "
        "its share of a node's, 8 at least and 16 with O or C where a node has them",
    )
    mem: NonNegativeInt | str | None = Field(None, description="of a node, such as 200G; 0: all; None: what O needs")
    exclusive: bool = Field(False, description="allow no other jobs on the node")
    array_parallelism: PositiveInt | None = Field(
        None, description="jobs of the sweep that run at a time; None: as many as the cluster allows"
    )
    requeue: bool = Field(True, description="queue the job again after preemption or a node failure")
    setup: Annotated[tuple[str, ...], Tuple] = Field(
        (), description="shell lines before the run, such as 'module load cuda'"
    )
    options: dict[str, str | int | float | bool | None] = Field(
        default_factory=dict, description="more sbatch options, by their long names"
    )
    detach: bool = Field(False, description="return once the jobs are submitted")
    poll_s: PositiveFloat = Field(10.0, description="how often SLURM is asked about its jobs")
    patience_s: PositiveFloat = Field(
        3600.0, description="how long SLURM may stay silent before the waiting ends; the jobs continue"
    )

    @field_validator("options")
    @classmethod
    def _has_no_name(cls, options: dict[str, Any]) -> dict[str, Any]:
        named = next((name for name in ("job-name", "job_name") if name in options), None)
        if named:
            raise ValueError(
                f"hydra.launcher.options.{named}={options[named]}: llmexp names its jobs itself, to know them again"
            )
        return options


DEFAULTS = {name: field.get_default(call_default_factory=True) for name, field in SlurmOptions.model_fields.items()}


def read_options(given: Mapping[str, Any]) -> SlurmOptions:
    """Check the values of hydra.launcher; raises ConfigError with one line."""
    try:
        return SlurmOptions.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(wrong_value(SlurmOptions, error.errors()[0], "hydra.launcher.")) from None
