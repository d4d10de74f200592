"""The data that the model reads: each kind has its own type, and data.name tells the types apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from llmexp.schema.section import Tuple, Whole
from llmexp.schema.tagged import Tagged

Files = Annotated[tuple[str, ...], Tuple]


class _Data(Tagged):
    """The keys that all kinds of data share; seq_len counts positions, padding included."""

    name: str
    seq_len: Annotated[int, Field(ge=2), Whole]
    seq_len_schedule: Annotated[tuple[Annotated[int, Field(ge=2), Whole], ...], Tuple] = Field(
        (),
        description=(
            "sequence lengths for equal shares of the steps, in increasing order and ending at seq_len; empty: "
            "seq_len throughout"
        ),
    )

    @property
    def places(self) -> dict[str, str]:
        """The folders, files or hub names that are read, by their dotted keys."""
        return {}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The files and folders that are read; a pattern is cut before its first star."""
        return tuple(self.places.values())

    @property
    def dataset(self) -> str | None:
        """The place of the Hugging Face dataset; None where none is read."""
        return None

    @property
    def pads(self) -> bool:
        """Tell whether sequences may end in padding."""
        return False

    @property
    def isolates(self) -> bool:
        """Tell whether a sequence holds several records, none of which may see another."""
        return False

    @model_validator(mode="after")
    def _growing(self) -> _Data:
        lengths = self.seq_len_schedule
        if lengths and (list(lengths) != sorted(set(lengths)) or lengths[-1] != self.seq_len):
            raise ValueError(
                f"data.seq_len_schedule={list(lengths)} must increase and end at data.seq_len={self.seq_len}"
            )
        return self


class SyntheticData(_Data):
    """Random tokens in full sequences."""

    kinds = ("data=synthetic",)
    said = "data=synthetic draws its tokens and reads nothing"

    name: Literal["synthetic"]


class WrittenData(_Data):
    """Text that a tokenizer turns into tokens."""

    tokenizer: str = Field("bytes", description="'bytes', or a folder or hub name of a transformers tokenizer")
    pack: bool = Field(
        True, description="join documents and cut them into full sequences; false: one document per sequence, padded"
    )

    @property
    def places(self) -> dict[str, str]:
        """The place of the tokenizer, and that of the dataset where there is one."""
        return {"data.tokenizer": self.tokenizer} | ({"data.path": self.dataset} if self.dataset else {})

    @property
    def pads(self) -> bool:
        """Tell whether sequences may end in padding, which they do where documents are not joined."""
        return not self.pack


class TextData(WrittenData):
    """Text files, read as they are."""

    kinds = ("data=text",)
    said = "data=text reads data.files"
    instead: ClassVar[Mapping[str, str]] = {"path": "write data.files=[{value}]"}

    name: Literal["text"]
    files: Files = Field((), description="of text; folders or globs; empty: the sources of Python's standard library")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The places, and the files of data.files."""
        return (*super().inputs, *_before_stars(self.files))


class HfData(WrittenData):
    """A text column of a Hugging Face dataset."""

    kinds = ("data=hf",)
    said = "data=hf reads data.path"
    instead: ClassVar[Mapping[str, str]] = {"files": "write data.path=<dataset>"}

    name: Literal["hf"]
    path: str = Field(description="a datasets folder, script-free hub name, or JSONL, Parquet or text file")
    split: str = "train"
    field: str = Field("text", description="the column that holds the text")

    @property
    def dataset(self) -> str:
        """The place of the Hugging Face dataset, which this kind always has."""
        return self.path


class InstructionsData(WrittenData):
    """Records of questions and answers; only the answers are learned."""

    kinds = ("data=instructions",)
    said = "data=instructions reads the fields of records from data.files or data.path"

    name: Literal["instructions"]
    files: Files = Field((), description="of records; folders or globs; without files and path: the project's own set")
    path: str | None = Field(None, description="a datasets folder, script-free hub name, or JSONL or Parquet file")
    split: str = Field("train", description="of the dataset of path")
    pack: bool = Field(
        True,
        description="fill sequences with records that do not attend to each other; false: one record per sequence, "
        "padded",
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The places, and the files of data.files."""
        return (*super().inputs, *_before_stars(self.files))

    @property
    def dataset(self) -> str | None:
        """The place of the Hugging Face dataset; None where data.path names none."""
        return self.path

    @property
    def pads(self) -> bool:
        """Always true, packed or not: records are not cut to fill a sequence."""
        return True

    @property
    def isolates(self) -> bool:
        """Tell whether a sequence holds several records, which it does where they are packed."""
        return self.pack

    @model_validator(mode="after")
    def _one_source_of_whole_records(self) -> InstructionsData:
        if self.files and self.path:
            raise ValueError(f"data.files=[{','.join(self.files)}] and data.path={self.path}: leave one of them out")
        if self.seq_len_schedule:
            raise ValueError(
                "data.seq_len_schedule cuts sequences, which would cut off the answers of data=instructions: leave it "
                "out"
            )
        return self


def _before_stars(patterns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(place for pattern in patterns if (place := pattern.partition("*")[0]))


DataConfig = Annotated[SyntheticData | TextData | HfData | InstructionsData, Field(discriminator="name")]
