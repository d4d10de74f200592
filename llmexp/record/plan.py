"""The frozen plan of one run: plan.json, which the spawned ranks read. What every plan has is here; a task's own type adds the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, Field

from llmexp.errors import ConfigError, RecordError
from llmexp.record.naming import name_of
from llmexp.record.reading import read_json
from llmexp.record.samples import Record, StateBytes
from llmexp.record.unreadable_record import unreadable_record
from llmexp.schema import HfModel, RunConfig, RuntimeConfig
from llmexp.tasks import get_task

PLAN_SCHEMA_VERSION = 1


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


class MemoryEstimate(Record):
    """Bytes of training state that one rank holds for certain at one time; activations, buffers and the allocator's waste come on top."""

    parameters: StateBytes
    gradients: StateBytes = Field(description="the most between backward and update, copies for the update among them")
    optimizer: StateBytes
    gathered: int = Field(
        0, description="whole parameters on the device at the end of forward, beside the rank's part of them"
    )
    gathered_beside_gradients: int = Field(0, description="of these what is still there when all gradients are")
    arithmetic: str = Field(description="the same in words, for people")

    @property
    def device(self) -> int:
        """Bytes on the device, of one rank: at the end of forward, or when gradients are there."""
        return (
            self.parameters.device
            + self.optimizer.device
            + max(self.gathered, self.gathered_beside_gradients + self.gradients.device)
        )

    @property
    def host(self) -> int:
        """Bytes in host memory, of one rank."""
        return self.parameters.host + self.gradients.host + self.optimizer.host

    @property
    def in_all(self) -> int:
        """Bytes of one rank wherever they lie, which on a CPU rank is one memory: less than both where they have their most at different times."""
        lasting = sum(kind.device + kind.host for kind in (self.parameters, self.optimizer))
        return lasting + max(
            self.gathered, self.gathered_beside_gradients + self.gradients.device + self.gradients.host
        )


class RunPlan(Record):
    """Everything that is decided before a run starts, whatever its task; `skip` says why it will not start."""

    rate: ClassVar[str] = ""
    """The metric that says how fast a run was: verdicts, comparisons and costs go by it."""
    sample_name: ClassVar[str] = "sample"
    """What a sample is called, such as step."""

    schema_version: int = Field(PLAN_SCHEMA_VERSION, alias="schema")
    id: str
    processes: int = Field(description="ranks on all nodes together")
    devices: int = Field(description="that they compute on; on cpu a rank counts as a device")
    memory: MemoryEstimate | None = Field(
        None, description="what a rank holds for certain; None where nothing is known before it starts"
    )
    engine_config: dict[str, Any]
    command: Command
    rerun_command: str = Field("", description="the shell line that repeats this run")
    skip: str | None = None
    label: str = Field(
        "", description="what tells this run from others of its sweep of the same subject, as a person types it"
    )
    config: RunConfig
    written_by: str = Field("", description="llmexp's version")

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)

    @property
    def asked(self) -> str:
        """What besides the engine decides which libraries are needed, as it is typed."""
        return f"task={self.config.task.name}"

    @property
    def rate_unit(self) -> str:
        """The unit of the rate, such as tokens/s."""
        return self.rate.replace("_per_", "/")

    @property
    def subject(self) -> dict[str, str]:
        """What is measured, in the words that name the run and its folder: of training the model and the method."""
        return {"task": self.config.task.name}

    @property
    def work(self) -> dict[str, str]:
        """What runs must share, apart from what is compared, for their rates to be held against each other; by the words that a heading uses."""
        config = self.config
        own = {"task": config.task.name, "hardware": config.hardware.name, "engine": config.engine.name}
        return own | {"ranks": str(self.processes), "runtime": runtime_name(config.runtime)}

    @property
    def kind(self) -> dict[str, str]:
        """What decides, with the subject, how long a sample of some amount takes."""
        return self.work

    @property
    def arithmetic(self) -> str:
        """How the number of ranks comes about, in words."""
        return f"{self.processes} rank{'s' * (self.processes > 1)}"

    @property
    def params(self) -> dict[str, Any]:
        """What the plan made of the configuration, as parameters of a tracker."""
        return self.subject

    @property
    def in_result(self) -> dict[str, Any]:
        """What result.json repeats of the plan, beside what all results have."""
        return {}

    @property
    def samples(self) -> int:
        """Samples of a repeat, warm-up included; 0 where nobody knows before."""
        return 0

    @property
    def measured_samples(self) -> int:
        """Those of them that are measured."""
        return 0

    @property
    def amount(self) -> float:
        """What one sample of all ranks comes to in the unit of the rate, such as positions; 0 where nobody knows before."""
        return 0.0

    @property
    def atom_codes(self) -> tuple[str, ...]:
        """Codes of the method's atoms; none where the task has no methods."""
        return ()

    @property
    def over_amount(self) -> tuple[str, ...]:
        """Values of a sample that say more over what was done so far than over the number of samples."""
        return ()

    @property
    def replicas(self) -> int:
        """How many times as much all ranks do as one of them."""
        return self.processes

    @property
    def loads_host(self) -> bool:
        """Whether the host's memory and its links to the devices are busy while the run is measured."""
        return False

    @property
    def compiles(self) -> bool:
        """Whether the ranks compile what torch.compile generates."""
        return False

    @property
    def model_to_fetch(self) -> HfModel | None:
        """The model whose weights may have to be brought to the node before any rank starts."""
        return None

    @property
    def name(self) -> str:
        """The run in words, other words than those of the other runs of its sweep."""
        return name_of(self.subject.values(), [self.label] if self.label else [])

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each machine."""
        return self.processes // self.config.hardware.nodes

    @property
    def folder_name(self) -> str:
        """<subject>_<id12>, of training <model>_<method>_<id12>; a part of a path, whatever the subject."""
        return "_".join((*self.subject.values(), self.id)).replace("/", "-")

    @property
    def folder(self) -> Path:
        """Where the run is recorded, below the sweep's folder."""
        return Path(self.config.sweep.outputs) / self.config.sweep.name / self.folder_name

    @classmethod
    def of(cls, found: Any) -> Self:
        """Take what a plan.json holds as its own task's type, or as this one; raises ConfigError for a task that is not here, else ValueError."""
        kind: Any = get_task(found["config"]["task"]["name"]).plan_type if cls is RunPlan else cls
        plan: Self = kind.model_validate(found, strict=False)
        return plan

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a plan.json as its own task's type, or as this one; raises RecordError where it is none of this version's, DamagedError where it is
        missing or no version's."""
        try:
            return cls.of(read_json(path))
        except ConfigError as error:
            raise RecordError(f"{path}: {error}") from None
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise unreadable_record(path, "plan", error) from None
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error}") from None


def runtime_name(runtime: RuntimeConfig) -> str:
    """The runtime's name and what tells it from others of that name."""
    image, python = runtime.image or "", runtime.python or ""
    place = image.rpartition("/")[2] or python.removesuffix("/bin/python").rpartition("/")[2]
    variables = (f"{name}={value}" for name, value in runtime.environment.items())
    return " ".join(filter(None, (runtime.name, place, *runtime.modules, *variables)))
