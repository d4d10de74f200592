"""The section of the fixed set of prompts by which a server's answers are compared with one process's."""

from __future__ import annotations

from pydantic import Field

from llmexp.schema.section import PositiveInt, Section


class QualityConfig(Section):
    """Prompts that a server answers after its loads; one process of transformers computes the same tokens."""

    prompts: PositiveInt = Field(16, description="asked at once, after the loads; the same for every engine and seed")
    output_tokens: PositiveInt = Field(16, description="greedy tokens of each answer")
    prompt_tokens: PositiveInt | None = Field(
        None, description="of each prompt; None: what the longest request leaves, at most 64. Of texts the most"
    )

    def __str__(self) -> str:
        return f"{self.prompts} prompts, {self.output_tokens} greedy tokens each"
