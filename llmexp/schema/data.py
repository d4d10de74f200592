"""What the model reads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from llmexp.schema.section import Section, Tuple, Whole


class DataConfig(Section):
    """What the model reads. seq_len counts positions, padding included."""

    name: Literal["synthetic", "text", "hf", "instructions"]
    seq_len: Annotated[int, Field(ge=2), Whole]
    files: Annotated[tuple[str, ...], Tuple] = Field(
        (), description="of text or records; folders or globs; none: made of Python's own library sources"
    )
    path: str | None = Field(None, description="hf, instructions: a datasets folder, script-free hub name, or JSONL, Parquet or text file")
    split: str = "train"
    field: str = Field("text", description="data=hf: the column that holds the text")
    tokenizer: str = Field("bytes", description="'bytes', or a folder or hub name of a transformers tokenizer")
    pack: bool = Field(
        True,
        description="join documents and cut them into full sequences; instructions: fill sequences with records that do not see each other; "
        "false: one of them a sequence, padded",
    )

    seq_len_schedule: Annotated[tuple[Annotated[int, Field(ge=2), Whole], ...], Tuple] = Field(
        (), description="lengths that the steps pass through in equal shares, each greater than the one before, the last seq_len; none: all have it"
    )

    @property
    def isolates(self) -> bool:
        """Whether a sequence holds several records, none of which may see another."""
        return self.name == "instructions" and self.pack

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        files = f"data.files=[{','.join(self.files)}]"
        if self.name == "instructions" and self.files and self.path:
            raise ValueError(f"{files} and data.path={self.path}: leave one of them out")
        if self.name == "synthetic" and (self.files or self.path):
            given = files if self.files else f"data.path={self.path}"
            raise ValueError(f"{given}: data=synthetic draws its tokens and reads nothing; data=text reads data.files, data=hf reads data.path")
        if self.name == "text" and self.path:
            raise ValueError(f"data.path={self.path}: data=text reads data.files=[{self.path}]; data=hf and data=instructions read data.path")
        if self.name == "hf" and self.files:
            raise ValueError(f"{files}: data=hf reads data.path=<dataset>; data=text and data=instructions read data.files")
        return self

    @model_validator(mode="after")
    def _growing(self) -> DataConfig:
        lengths = self.seq_len_schedule
        if not lengths:
            return self
        if list(lengths) != sorted(set(lengths)) or lengths[-1] != self.seq_len:
            raise ValueError(f"data.seq_len_schedule={list(lengths)} must grow from length to length and end at data.seq_len={self.seq_len}")
        if self.name == "instructions":
            raise ValueError("data.seq_len_schedule cuts sequences, and of data=instructions that would be the answers: leave it out")
        return self
