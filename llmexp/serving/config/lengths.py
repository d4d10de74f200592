"""The sections that say how long prompts and outputs are."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from llmexp.schema.section import PositiveFloat, PositiveInt, Section

Bounds = Annotated[
    tuple[PositiveInt, PositiveInt], Field(strict=False, json_schema_extra={"kind": "[least,most], both at least 1"})
]
LengthsFile = Annotated[str, Field(min_length=1, json_schema_extra={"kind": "a file of lengths"})]
LengthKind = Literal["fixed", "uniform", "lognormal", "listed"]


class Lengths(Section):
    """Lengths in tokens: the value of `tokens` says of which kind, and a variation makes a number a mean."""

    key: ClassVar[str]
    """The section's dotted key."""

    tokens: PositiveInt | Bounds | LengthsFile = Field(
        description="of every request; or [least,most], uniform between the two; or a file of lengths"
    )
    variation: PositiveFloat | None = Field(
        None,
        description="coefficient of variation: lengths are lognormal, `tokens` is their mean before they are cut",
    )
    limits: Bounds | None = Field(None, description="[least,most], to which a lognormal distribution is cut")

    @property
    def kind(self) -> LengthKind:
        """The kind of distribution that these lengths have."""
        if isinstance(self.tokens, str):
            return "listed"
        if isinstance(self.tokens, tuple):
            return "uniform"
        return "lognormal" if self.variation else "fixed"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The file that is read, where there is one."""
        return (self.tokens,) if isinstance(self.tokens, str) else ()

    def __str__(self) -> str:
        if isinstance(self.tokens, str):
            return f"lengths of {self.tokens}"
        if isinstance(self.tokens, tuple):
            return f"{self.tokens[0]} to {self.tokens[1]} tokens"
        if self.limits is None:
            return f"{self.tokens} tokens"
        return (
            f"{self.limits[0]} to {self.limits[1]} tokens, lognormal around {self.tokens}, variation {self.variation:g}"
        )

    @model_validator(mode="after")
    def _is_one_kind(self) -> Lengths:
        for name, bounds in (("tokens", self.tokens), ("limits", self.limits)):
            if isinstance(bounds, tuple) and bounds[0] > bounds[1]:
                raise ValueError(f"{self.key}.{name}=[{bounds[0]},{bounds[1]}]: the first is the least, then the most")
        if self.variation is not None:
            self._check_lognormal(self.variation)
        elif self.limits:
            least, most = self.limits
            raise ValueError(
                f"{self.key}.limits=[{least},{most}] cut a lognormal distribution: set {self.key}.variation, "
                f"or {self.key}.tokens=[{least},{most}] for uniform lengths"
            )
        return self

    def _check_lognormal(self, variation: float) -> None:
        said = f"{self.key}.variation={variation:g}"
        if not isinstance(self.tokens, int):
            raise ValueError(f"{said} varies around a mean: set {self.key}.tokens to a number, or leave it out")
        if self.limits is None:
            raise ValueError(f"{said} has no longest length: set {self.key}.limits=[1,{4 * self.tokens}] or others")
        if not self.limits[0] <= self.tokens <= self.limits[1]:
            raise ValueError(
                f"{self.key}.limits=[{self.limits[0]},{self.limits[1]}] leave out the mean, "
                f"{self.key}.tokens={self.tokens}"
            )


class PromptLengths(Lengths):
    """The lengths of prompts; a shared prefix is not counted."""

    key = "serve.prompt"


class OutputLengths(Lengths):
    """The lengths of outputs, which are enforced."""

    key = "serve.output"
