"""What the model reads: a type for each kind of data, told apart by data.name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from llmexp.schema.section import Tuple, Whole
from llmexp.schema.tagged import Tagged

Files = Annotated[tuple[str, ...], Tuple]


class _Data(Tagged):
    """What all kinds have. seq_len counts positions, padding included."""

    name: str
    seq_len: Annotated[int, Field(ge=2), Whole]
    seq_len_schedule: Annotated[tuple[Annotated[int, Field(ge=2), Whole], ...], Tuple] = Field(
        (),
        description="lengths that the steps pass through in equal shares, each greater than the one before, the last seq_len; none: all have it",
    )

    @property
    def places(self) -> dict[str, str]:
        """Folders, files or hub names that are read, by their dotted keys."""
        return {}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Files and folders that are read, of patterns what stands before the first star."""
        return tuple(self.places.values())

    @property
    def dataset(self) -> str | None:
        """The place of a dataset of Hugging Face; None where none is read."""
        return None

    @property
    def pads(self) -> bool:
        """Whether sequences may end in padding."""
        return False

    @property
    def isolates(self) -> bool:
        """Whether a sequence holds several records, none of which may see another."""
        return False

    @model_validator(mode="after")
    def _growing(self) -> _Data:
        lengths = self.seq_len_schedule
        if lengths and (list(lengths) != sorted(set(lengths)) or lengths[-1] != self.seq_len):
            raise ValueError(
                f"data.seq_len_schedule={list(lengths)} must grow from length to length and end at data.seq_len={self.seq_len}"
            )
        return self


class SyntheticData(_Data):
    """Random tokens in full sequences."""

    kinds = ("data=synthetic",)
    said = "data=synthetic draws its tokens and reads nothing"

    name: Literal["synthetic"]


class WrittenData(_Data):
    """What is written in words, which a tokenizer makes into tokens."""

    tokenizer: str = Field("bytes", description="'bytes', or a folder or hub name of a transformers tokenizer")
    pack: bool = Field(
        True, description="join documents and cut them into full sequences; false: one of them a sequence, padded"
    )

    @property
    def places(self) -> dict[str, str]:
        """The tokenizer's, and that of a dataset."""
        return {"data.tokenizer": self.tokenizer} | ({"data.path": self.dataset} if self.dataset else {})

    @property
    def pads(self) -> bool:
        """Where documents are not joined."""
        return not self.pack


class TextData(WrittenData):
    """Files as they are."""

    kinds = ("data=text",)
    said = "data=text reads data.files"
    instead: ClassVar[Mapping[str, str]] = {"path": "write data.files=[{value}]"}

    name: Literal["text"]
    files: Files = Field((), description="of text; folders or globs; none: Python's own library sources")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The files too."""
        return (*super().inputs, *_before_stars(self.files))


class HfData(WrittenData):
    """A column of a dataset of Hugging Face."""

    kinds = ("data=hf",)
    said = "data=hf reads data.path"
    instead: ClassVar[Mapping[str, str]] = {"files": "write data.path=<dataset>"}

    name: Literal["hf"]
    path: str = Field(description="a datasets folder, script-free hub name, or JSONL, Parquet or text file")
    split: str = "train"
    field: str = Field("text", description="the column that holds the text")

    @property
    def dataset(self) -> str:
        """Always there."""
        return self.path


class InstructionsData(WrittenData):
    """Questions and answers, of which the answers are learned."""

    kinds = ("data=instructions",)
    said = "data=instructions reads the fields of records, of data.files or data.path"

    name: Literal["instructions"]
    files: Files = Field((), description="of records; folders or globs; neither files nor path: the project's own set")
    path: str | None = Field(None, description="a datasets folder, script-free hub name, or JSONL or Parquet file")
    split: str = Field("train", description="of the dataset of path")
    pack: bool = Field(
        True,
        description="fill sequences with records that do not see each other; false: one of them a sequence, padded",
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The files too."""
        return (*super().inputs, *_before_stars(self.files))

    @property
    def dataset(self) -> str | None:
        """Where data.path names one."""
        return self.path

    @property
    def pads(self) -> bool:
        """Packed or not: records are not cut to fill a sequence."""
        return True

    @property
    def isolates(self) -> bool:
        """Where they are packed."""
        return self.pack

    @model_validator(mode="after")
    def _one_source_of_whole_records(self) -> InstructionsData:
        if self.files and self.path:
            raise ValueError(f"data.files=[{','.join(self.files)}] and data.path={self.path}: leave one of them out")
        if self.seq_len_schedule:
            raise ValueError(
                "data.seq_len_schedule cuts sequences, and of data=instructions that would be the answers: leave it out"
            )
        return self


def _before_stars(patterns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(place for pattern in patterns if (place := pattern.partition("*")[0]))


DataConfig = Annotated[SyntheticData | TextData | HfData | InstructionsData, Field(discriminator="name")]
