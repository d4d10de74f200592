"""The base class of the configuration's sections and the types of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from llmexp.dtypes import of_moments, of_parameters, of_peaks

Max = Literal["max"]
MAX: Max = "max"
CpKind = Literal["ring", "ulysses"]
EndsAsLayers = Literal["embedding", "head", "both"]
if TYPE_CHECKING:
    Dtype: TypeAlias = str
    MomentDtype: TypeAlias = str
    PeakDtype: TypeAlias = str
else:
    Dtype, MomentDtype, PeakDtype = (Literal[names] for names in (of_parameters(), of_moments(), of_peaks()))


def whole(value: Any) -> Any:
    """Return an int for a float that is a whole number, because YAML reads 16e9 as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def listed(value: Any) -> Any:
    """Return one value as a list of one, because serve.rate=4 is what people type."""
    return value if isinstance(value, list | tuple) else [value]


Whole = BeforeValidator(whole)
# The largest that torch and numpy hold; and so many steps or requests as no run comes to the end of.
LARGEST_INT, MOST_STEPS, MOST_REQUESTS = 2**63 - 1, 10**9, 10**7
PositiveInt = Annotated[int, Field(ge=1, le=LARGEST_INT), Whole]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST_INT), Whole]
Steps = Annotated[int, Field(ge=1, le=MOST_STEPS), Whole]
Requests = Annotated[int, Field(ge=1, le=MOST_REQUESTS), Whole]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1, description="numpy takes none above"), Whole]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Tuple = Field(strict=False)
# `key=a,b` is a list of one run, not a sweep over runs.
OneRun = Field(strict=False, json_schema_extra={"commas": "list"})
Sizes = Annotated[tuple[PositiveInt, ...], Tuple]
Names = Annotated[tuple[str, ...], OneRun, BeforeValidator(listed)]
FolderPart = Annotated[
    str,
    Field(
        pattern=r"^[^/\x00-\x1f\x7f]+$", json_schema_extra={"kind": "a name without '/', as a folder is named by it"}
    ),
]
DottedPath = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$", json_schema_extra={"kind": "a dotted path, such as torch.optim.SGD"}
    ),
]


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, types are not coerced, values don't change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, protected_namespaces=(), defer_build=True, allow_inf_nan=False
    )
