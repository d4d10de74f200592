"""The frozen plan of one run: plan.json, which the spawned ranks read.

This module has what every plan has; a task's own plan type adds the rest.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from pydantic import ConfigDict, Field, computed_field, field_validator, model_validator

from llmexp.errors import ConfigError, RecordError
from llmexp.record.memory import MemoryEstimate
from llmexp.record.naming import name_of
from llmexp.record.predicted import Prediction
from llmexp.record.read_data import ReadData
from llmexp.record.reading import parsed, read_text
from llmexp.record.samples import Record
from llmexp.record.skip import Skip
from llmexp.record.unreadable_record import unreadable_record
from llmexp.registry import get_task
from llmexp.schema import HfModel, RunConfig, RuntimeConfig

if TYPE_CHECKING:
    from llmexp.record.shared_parts import SharedParts

PLAN_SCHEMA_VERSION = 3
# What a run's command begins with, before its overrides.
PROGRAM = ("python", "-m", "llmexp")


class Command(Record):
    """The command that is spawned on a node: an argument list and environment variables added to the driver's.

    The arguments may have the placeholders that Engine.command documents. `unset` names variables of the driver that
    the command must not see.
    """

    argv: list[str]
    env: dict[str, str] = Field(default_factory=dict)
    unset: list[str] = Field(default_factory=list)

    def words(self, **places: object) -> list[str]:
        """Return the argument list with the named placeholders filled in."""
        filled = list(self.argv)
        for name, value in places.items():
            filled = [word.replace(f"{{{name}}}", str(value)) for word in filled]
        return filled


@dataclass(frozen=True)
class OutsideServer:
    """A server that a run needs and does not start: its URL, a path that it answers, and the key that names it."""

    url: str
    path: str
    key: str


class PlanFile(Record):
    """What plan.json holds, whatever the task; `skip` says why the run will not start."""

    rate: ClassVar[str] = ""
    """The metric of a run's speed, on which verdicts, comparisons and costs are based."""
    sample_name: ClassVar[str] = "sample"
    """The name of a sample, such as step."""

    schema_version: int = Field(PLAN_SCHEMA_VERSION, alias="schema")
    id: str
    processes: int = Field(description="ranks on all nodes together")
    devices: int = Field(description="that they compute on; on cpu a rank counts as a device")
    memory: MemoryEstimate | None = Field(
        None, description="what a rank holds for certain; None where nothing is known before it starts"
    )
    predicted: Prediction | None = Field(
        None, description="the rate that was expected when the run was planned; None where it is not predicted"
    )
    engine_config: dict[str, Any]
    command: Command
    overrides: list[str] = Field(
        default_factory=list, description="the words, after `python -m llmexp`, of the command that repeats this run"
    )
    skip: Skip | None = None
    label: str = Field(
        "", description="what tells this run from others of its sweep with the same name fields, as a person types it"
    )
    awaited: bool = Field(False, description="other runs of the sweep start from the model that this one makes")
    started_from: str = Field("", description="digest of another run's weights, as this one found them at its start")
    config: RunConfig
    written_by: str = Field("", description="llmexp's version")

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _of_version_1(cls, found: Any) -> Any:
        """Read the words from the shell line, which version 1 has alone."""
        if not isinstance(found, dict) or "rerun_command" not in found:
            return found
        rest = {name: value for name, value in found.items() if name != "rerun_command"}
        if "overrides" in rest:
            return rest
        return rest | {"overrides": overrides_of(found["rerun_command"])}

    @field_validator("schema_version")
    @classmethod
    def _of_today(cls, version: int) -> int:
        return max(version, PLAN_SCHEMA_VERSION)

    @computed_field(description="the shell line that repeats this run")  # type: ignore[prop-decorator]
    @property
    def rerun_command(self) -> str:
        """The shell line that repeats this run."""
        return shlex.join((*PROGRAM, *self.overrides))

    @property
    def in_result(self) -> dict[str, Any]:
        """The plan's values that result.json repeats, besides those that all results have."""
        return {}

    @classmethod
    def of(cls, found: Any) -> Self:
        """Validate the content of a plan.json as its own task's type or, on a subclass, as that type.

        Raises ConfigError for a task that is not installed, ValueError for a plan that is not valid.
        """
        return cls._kind(found["config"]["task"]["name"]).model_validate(found, strict=False)

    @classmethod
    def _kind(cls, task: str) -> type[Self]:
        return cast(type[Self], get_task(task).plan_type) if cls is RunPlan else cls

    @classmethod
    def read(cls, path: Path, parts: SharedParts | None = None) -> Self:
        """Read a plan.json as its own task's type or, on a subclass, as that type; `parts` are of those read before.

        Raises RecordError where it is not a plan of this version, DamagedError where it is missing or no version's.
        """
        try:
            text = read_text(path)
            shared = parts.read(cls._kind(task), text) if parts and (task := parts.task_of(text)) else None
            return shared or cls.of(parsed(text))
        except ConfigError as error:
            raise RecordError(f"{path}: {error}") from None
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise unreadable_record(path, "plan", error) from None
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error}") from None


class PlanNames(PlanFile):
    """What a run is called, and by what runs are compared."""

    @property
    def name_fields(self) -> dict[str, str]:
        """What is measured, by which the run and its folder are named: for training, model and method."""
        return {"task": self.config.task.name}

    @property
    def comparison_key(self) -> dict[str, str]:
        """The properties, by a heading's words, that runs must share for their rates to be comparable.

        What is compared itself is left out.
        """
        config = self.config
        own = {"task": config.task.name, "hardware": config.hardware.name, "engine": config.engine.name}
        return own | {"ranks": str(self.processes), "runtime": runtime_name(config.runtime)}

    @property
    def duration_key(self) -> dict[str, str]:
        """The properties that decide, together with the name fields, how long a sample of a given amount takes."""
        return self.comparison_key

    @property
    def name(self) -> str:
        """The run's name in words, which differs from the names of the other runs of its sweep."""
        return name_of(self.name_fields.values(), [self.label] if self.label else [])

    @property
    def folder_name(self) -> str:
        """The folder's name, for training <model>_<method>_<id12>, made safe as one part of a path."""
        return "_".join((*self.name_fields.values(), self.id)).replace("/", "-")

    @property
    def folder(self) -> Path:
        """The folder of the run's records, below the sweep's folder."""
        return Path(self.config.sweep.outputs) / self.config.sweep.name / self.folder_name

    @property
    def arithmetic(self) -> str:
        """The calculation of the number of ranks, in words."""
        return f"{self.processes} rank{'s' * (self.processes > 1)}"

    @property
    def params(self) -> dict[str, Any]:
        """The values that the plan derived from the configuration, as parameters for a tracker."""
        return self.name_fields

    @property
    def rate_unit(self) -> str:
        """The unit of the rate, such as tokens/s."""
        return self.rate.replace("_per_", "/").replace("_", " ")


class PlanAmounts(PlanFile):
    """How much a run does."""

    @property
    def samples(self) -> int:
        """The number of samples per repeat, warm-up included; 0 where it is not known in advance."""
        return 0

    @property
    def measured_samples(self) -> int:
        """The number of measured samples per repeat."""
        return 0

    @property
    def amount(self) -> float:
        """The work of one sample of all ranks in the unit of the rate, such as positions; 0 if not known in advance."""
        return 0.0

    @property
    def over_amount(self) -> tuple[str, ...]:
        """The names of a sample's values that are best plotted over the work done so far, not the sample number."""
        return ()

    @property
    def flops_per_amount(self) -> float | None:
        """The FLOPs that the devices compute for each unit of `amount`; None where they are not known."""
        return None

    @property
    def least_flops(self) -> float | None:
        """The FLOPs that the devices compute at least for all samples of a repeat; None where they are not known."""
        return None if self.flops_per_amount is None else self.samples * self.amount * self.flops_per_amount

    @property
    def peak_flops_per_s(self) -> float | None:
        """The most FLOP/s that a device has for the run's arithmetic; None where its hardware does not say.

        Who multiplies in fp8 says so.
        """
        peaks = self.config.hardware.peak_flops_per_s.items()
        return max((peak for dtype, peak in peaks if dtype != "fp8"), default=None)

    @property
    def emulates(self) -> bool:
        """Tell whether a GPU stands in for a smaller one; on cpu a limit is a condition of what is measured."""
        hardware = self.config.hardware
        return hardware.device == "cuda" and hardware.memory_limit_bytes is not None

    @property
    def limit_s(self) -> float | None:
        """The seconds that the samples of a repeat take at most; None where nothing limits them."""
        return None

    @property
    def load_s(self) -> float | None:
        """The seconds for which a repeat sends its samples at the rates that were asked for; None if it sets none."""
        return None

    @property
    def asked_s(self) -> float | None:
        """The seconds after which a repeat takes no further samples; None where their number is known in advance."""
        return None

    @property
    def replicas(self) -> int:
        """The ratio of the work of all ranks to the work of one."""
        return self.processes


class PlanNeeds(PlanFile):
    """What a run needs to start, and what its driver has to watch."""

    @property
    def dataset(self) -> ReadData | None:
        """The data set that the run reads; None where it reads none."""
        return None

    @property
    def tokenizer(self) -> str:
        """What makes the tokens that its model reads: `bytes`, a folder or a hub name; empty where nobody chose one."""
        return ""

    @property
    def requested(self) -> str:
        """The override, as it is typed, that decides with the engine which libraries are needed."""
        return f"task={self.config.task.name}"

    @property
    def atom_codes(self) -> tuple[str, ...]:
        """The codes of the method's atoms; empty where the task has no methods."""
        return ()

    @property
    def loads_host(self) -> bool:
        """True where the host's memory and its links to the devices are busy while the run is measured."""
        return False

    @property
    def compiles(self) -> bool:
        """True where the ranks compile code that torch.compile generates."""
        return False

    @property
    def model_to_fetch(self) -> HfModel | None:
        """The model whose weights may have to be fetched to the node before any rank starts."""
        return None

    @property
    def outside_server(self) -> OutsideServer | None:
        """The server that has to answer before the run can start; None where it needs none."""
        return None

    @property
    def ranks_per_node(self) -> int:
        """The number of ranks on each machine."""
        return self.processes // self.config.hardware.nodes

    @property
    def devices_per_node(self) -> int:
        """The number of devices on each machine; one process, a server's client, may stand for several."""
        return self.devices // self.config.hardware.nodes


class RunPlan(PlanNames, PlanAmounts, PlanNeeds):
    """The decisions made before a run starts, whatever its task."""


def overrides_of(command: str) -> list[str]:
    """Return the overrides of a run's shell line; raises ValueError for a line that no shell would read."""
    return shlex.split(command)[len(PROGRAM) :]


def runtime_name(runtime: RuntimeConfig) -> str:
    """Return the runtime's name with what tells it from others of that name."""
    image, python = runtime.image or "", runtime.python or ""
    place = image.rpartition("/")[2] or python.removesuffix("/bin/python").rpartition("/")[2]
    variables = (f"{name}={value}" for name, value in runtime.environment.items())
    return " ".join(filter(None, (runtime.name, place, *runtime.modules, *variables)))
