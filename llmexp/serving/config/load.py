"""The sections that say what requests share, and which trace or ramp their times follow."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from llmexp.schema.section import PositiveFloat, PositiveInt, Section

NonNegativeFloat = Annotated[float, Field(ge=0)]


class SharedPrefix(Section):
    """Tokens that stand before the prompt's own ones, as a system prompt does."""

    tokens: PositiveInt
    number: PositiveInt = Field(1, description="number of prefixes; each request has one")

    def __str__(self) -> str:
        return f"{self.tokens} tokens" + (f", {self.number} of them" if self.number > 1 else "")


class PromptTexts(Section):
    """Prompts that are texts of a file or dataset, in place of random tokens."""

    path: str = Field(
        min_length=1,
        description="a JSONL, JSON or Parquet file of records, a text file with a prompt in each line, or a datasets "
        "folder or hub name",
    )
    split: str = Field("train", description="of a dataset")
    field: str | None = Field(
        None,
        description="the key or column that holds the prompt; None: prompt, text, alpaca's fields, messages or "
        "ShareGPT's conversations",
    )
    tokenizer: str | None = Field(
        None,
        description="'bytes', or a folder or hub name of a transformers tokenizer; None: the served checkpoint's own",
    )
    answers: bool = Field(False, description="outputs are as long as the answers in the records, not serve.output")
    max_tokens: PositiveInt | None = Field(
        None, description="prompts longer than this, output included, are left out; None: model.max_positions"
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The places that are read."""
        return (self.path, *((self.tokenizer,) if self.tokenizer else ()))

    def __str__(self) -> str:
        return f"texts of {self.path}" + (f", {self.field}" if self.field else "")


class ServedAdapters(Section):
    """LoRA adapters over the model's linear maps, which requests name in turn; their values are random."""

    number: PositiveInt
    rank: PositiveInt = 8

    def __str__(self) -> str:
        return f"{self.number} of rank {self.rank}"


class Sampling(Section):
    """Tokens are drawn, by the same seed for the same request, or beams searched; the output keeps its length."""

    temperature: PositiveFloat = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="drawn from the likeliest tokens of this much probability together"
    )
    n: PositiveInt = Field(1, description="answers drawn for each prompt, side by side, each of the output's length")
    beams: PositiveInt = Field(
        1,
        description="the likeliest sequences, searched together instead of drawn: the answers to a prompt, all at once",
    )

    @property
    def answers(self) -> int:
        """How many answers a request asks for."""
        return self.n * self.beams

    @model_validator(mode="after")
    def _is_drawn_or_searched(self) -> Sampling:
        if self.beams > 1 and (self.temperature, self.top_p, self.n) != (1, 1, 1):
            raise ValueError(
                f"serve.sampling.beams={self.beams}: a search draws nothing: leave temperature, top_p and n out"
            )
        return self

    def __str__(self) -> str:
        if self.beams > 1:
            return f"search with {self.beams} beams"
        answers = f", {self.n} answers a prompt" if self.n > 1 else ""
        return f"sampled at temperature {self.temperature:g}, top_p {self.top_p:g}{answers}"


class Ramp(Section):
    """A load whose rate rises, or falls, evenly with time until all its requests have been sent."""

    first_per_s: PositiveFloat = Field(description="requests/s at the start")
    last_per_s: PositiveFloat = Field(description="requests/s at the last request")

    def __str__(self) -> str:
        return f"{self.first_per_s:g} to {self.last_per_s:g}/s"


class RateSearchConfig(Section):
    """A search for a rate; each probe is an open load with serve.requests requests or more."""

    start_per_s: PositiveFloat = Field(1.0, description="requests/s of the first probe")
    tolerance: Annotated[float, Field(ge=0.02)] = Field(
        0.1, description="ends when the rates on both sides of saturation differ by at most this share"
    )
    most_probes: PositiveInt = Field(12, description="the most probes")
    least_s: PositiveFloat = Field(
        20.0, description="that a probe lasts: above serve.requests / least_s requests/s it has more requests"
    )

    def __str__(self) -> str:
        return f"search from {self.start_per_s:g}/s"


class TraceConfig(Section):
    """Times and lengths of requests that were recorded once."""

    file: str = Field(description="of Azure's CSV, Mooncake's JSONL, or due_s, prompt_tokens, output_tokens as either")
    begin_s: NonNegativeFloat = Field(0.0, description="seconds to skip at the start of the trace")
    end_s: PositiveFloat | None = Field(None, description="second of the trace to stop at; None: its end")
    speed: PositiveFloat = Field(1.0, description="2: twice the requests per second that were recorded")
    max_tokens: PositiveInt | None = Field(
        None, description="requests longer than this, prompt and output together, are left out; None: they are refused"
    )
    block_tokens: PositiveInt = Field(512, description="of a block that hash_ids stand for")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The file that is read."""
        return (self.file,)

    @model_validator(mode="after")
    def _ends_later(self) -> TraceConfig:
        if self.end_s is not None and self.end_s <= self.begin_s:
            raise ValueError(f"serve.trace.end_s={self.end_s:g} must be above serve.trace.begin_s={self.begin_s:g}")
        return self
