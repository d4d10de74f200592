"""What a run did as a training: the evidence by which two runs are found to have learned the same, or not."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import AliasChoices, Field

from llmexp.record.samples import Number, Record, digest_text


class TrainedRun(Record):
    """The first steps of a run's first repeat, warm-up included, and what it was asked to learn by."""

    requested: dict[str, str] = Field(
        validation_alias=AliasChoices("requested", "asked"),  # baselines of before 0.1.0 have the second
        description="the settings that decide what is learned, one value a key",
    )
    parameters_in: str = Field(description="the parameters' dtype")
    losses: list[Number] = Field(description="of each step, the mean over ranks and passes")
    sequences: list[str] = Field(
        default_factory=list, description="a digest of those that each step read; none where the ranks did not say"
    )
    products_in: str | None = Field(None, description="the dtypes of the matrix products that ran; None where unseen")
    gradient_norm: float | None = Field(None, description="of the first step, over the whole model")
    largest_update: float | None = Field(None, description="of a parameter by the first step, of a sample")
    draws: str = Field("", description="what makes equal trainings differ by chance, such as dropout; empty if nothing")


def added(digests: Iterable[str]) -> str:
    """Return the digest of all sequences of several ranks."""
    return digest_text(sum(int(digest, 16) for digest in digests))
