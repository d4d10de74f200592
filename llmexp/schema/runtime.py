"""The runtimes of the ranks: llmexp's own interpreter, another one, and one in a container have a type each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from llmexp.schema.section import Tuple
from llmexp.schema.tagged import Tagged

Words = Annotated[tuple[str, ...], Tuple]


class _Runtime(Tagged):
    """The keys that all runtimes share: what is loaded and set before ranks start."""

    name: str
    modules: Words = Field((), description="names for `module load`, on the host")
    setup: Words = Field((), description="bash lines run before the ranks, in the container where there is one")
    environment: dict[str, str] = Field(default_factory=dict, description="variables of the ranks")

    @property
    def plain(self) -> bool:
        """Tell whether ranks run in llmexp's own interpreter with nothing before it."""
        return not (self.modules or self.setup)


class HereRuntime(_Runtime):
    """The interpreter that llmexp itself runs in."""

    kinds = ("runtime=here",)
    said = "runtime=here is llmexp's own interpreter"
    instead: ClassVar[Mapping[str, str]] = {"python": "write runtime=venv runtime.python={value}"}
    python: ClassVar[None] = None
    container: ClassVar[None] = None
    image: ClassVar[None] = None

    name: Literal["here"]


class InterpreterRuntime(_Runtime):
    """An interpreter of this machine."""

    kinds = ("runtime=venv",)
    said = "runtime={name} is an interpreter on this machine"
    container: ClassVar[None] = None
    image: ClassVar[None] = None

    python: str | None = Field(None, description="interpreter of the ranks; None: llmexp's own")

    @property
    def plain(self) -> bool:
        """Tell whether ranks run in llmexp's own interpreter with nothing before it."""
        return self.python is None and super().plain


class ContainerRuntime(_Runtime):
    """An interpreter in a container."""

    kinds = ("runtime=apptainer", "runtime=docker")
    said = "runtime={name} is a container of {container}"

    container: Literal["apptainer", "docker"]
    image: str = Field(description="image of the container")
    python: str = Field("python3", description="interpreter of the ranks, in the image")
    program: str | None = Field(
        None, description="the command that starts the container, such as singularity or podman; None: its own name"
    )
    options: Words = Field((), description="further options of `apptainer exec` or `docker run`")

    @property
    def plain(self) -> bool:
        """Always false: a container is another interpreter."""
        return False


def _type(given: Any) -> str | None:
    """Return the name of the type that fits what is given; None where that is no section."""
    if isinstance(given, _Runtime):
        return type(given).__name__
    if not isinstance(given, Mapping):
        return None
    if given.get("name") == "here":
        return "HereRuntime"
    return "ContainerRuntime" if given.get("container") is not None else "InterpreterRuntime"


RuntimeConfig = Annotated[
    Annotated[HereRuntime, Tag("HereRuntime")]
    | Annotated[InterpreterRuntime, Tag("InterpreterRuntime")]
    | Annotated[ContainerRuntime, Tag("ContainerRuntime")],
    Discriminator(_type),
]
