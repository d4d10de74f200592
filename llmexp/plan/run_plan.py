"""The frozen plan of one run: plan.json, which the spawned ranks read and which the run's id is the hash of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from llmexp.plan.dims import ParallelDims
from llmexp.plan.memory import MemoryEstimate
from llmexp.record.flops import Flops
from llmexp.record.misfit import misfit
from llmexp.record.naming import NOT_MEASURED, name_of
from llmexp.record.reading import read_text
from llmexp.record.result import Batch, Record
from llmexp.schema import RunConfig

PLAN_SCHEMA_VERSION = 1
# What precision=auto chose is in the id, why it did is not.
NOT_IN_ID: dict[str, Any] = dict.fromkeys(NOT_MEASURED, True) | {"precision": {"chosen_because"}}


class Command(Record):
    """What is spawned on a node: an argument list, with the placeholders that Engine.command says, and the environment on top of the driver's.

    `unset` names variables of the driver's that it is not to see.
    """

    argv: list[str]
    env: dict[str, str] = Field(default_factory=dict)
    unset: list[str] = Field(default_factory=list)

    def words(self, **places: object) -> list[str]:
        """The argument list with the named placeholders filled in."""
        filled = list(self.argv)
        for name, value in places.items():
            filled = [word.replace(f"{{{name}}}", str(value)) for word in filled]
        return filled


class AtomChange(Record):
    """One atom of the method and what it changed against Naive."""

    code: str
    help: str
    sets: dict[str, Any]


class RunPlan(Record):
    """Everything that is decided before a run starts; `skip` says why it will not."""

    schema_version: int = Field(PLAN_SCHEMA_VERSION, alias="schema")
    id: str
    method: str
    atoms: list[AtomChange]
    dims: ParallelDims
    batch: Batch
    parameters: int | None = Field(description="of the whole model; None where the shape is not known before it is built")
    trainable_parameters: int | None
    active_parameters: int | None = Field(None, description="that a token meets: all but those of experts that it is not sent to")
    flops_per_token: float | None = Field(description="model FLOPs of one token's forward and backward pass, without recomputation")
    recomputed_flops_per_token: float | None = Field(None, description="what recomputation computes besides; 0 without it")
    flops: Flops | None = Field(None, description="what MFU and HFU count; None in plans older than the field")
    optimizer_state_bytes_per_parameter: float | None = Field(
        None, description="moments of a trained parameter; None where optimizer.target tells none"
    )
    memory: MemoryEstimate | None
    engine_config: dict[str, Any]
    command: Command
    rerun_command: str = Field(description="the shell line that repeats this run")
    skip: str | None = None
    told_by: str = Field("", description="what tells this run from others of its sweep of the same model and method, as a person types it")
    config: RunConfig
    written_by: str = Field("", description="llmexp's version")

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)

    @property
    def name(self) -> str:
        """The run in words, other words than those of the other runs of its sweep."""
        return name_of(self.config.model.name, self.method, [self.told_by] if self.told_by else [])

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each machine."""
        return self.dims.world_size // self.config.hardware.nodes

    @property
    def folder_name(self) -> str:
        """<model>_<method>_<id12>."""
        return f"{self.config.model.name}_{self.method}_{self.id}"

    @property
    def folder(self) -> Path:
        """Where the run is recorded, below the sweep's folder."""
        return Path(self.config.sweep.outputs) / self.config.sweep.name / self.folder_name

    @classmethod
    def read(cls, path: Path) -> RunPlan:
        """Read a plan.json; raises RecordError where it is none of this version's, DamagedError where it is missing or no version's."""
        try:
            return cls.model_validate_json(read_text(path), strict=False)
        except (FileNotFoundError, ValueError) as error:
            raise misfit(path, "plan", error) from None


def identity(config: RunConfig, method: str, engine_config: dict[str, Any], contents: Mapping[str, str] | None = None) -> str:
    """Hash what determines the measurement to 12 hexadecimal digits; tracking and launching left out.

    `contents`: digests of what lies at the configuration's paths, for another checkpoint or other records at the same place are another run.
    Defaults are left out too, so that a key that a later version adds leaves the ids of earlier runs as they are; a changed default is another stack.
    """
    resolved = config.model_dump(mode="json", exclude=NOT_IN_ID, exclude_defaults=True) | {"method": method, "engine_config": engine_config}
    if resolved["engine"]["launcher"] != "fork":  # its repeats share a process's memory layout; the others do the same thing
        resolved["engine"].pop("launcher")
    text = json.dumps(resolved | dict(contents or {}), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
