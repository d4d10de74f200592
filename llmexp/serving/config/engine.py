"""The engine of task=serve: its server may need another Python than the ranks, with libraries of its own."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from llmexp.schema.run import EngineConfig


class ServerEngineConfig(EngineConfig):
    """The engine whose server is started, and the interpreter of the environment that the server is installed in."""

    python: str | None = Field(
        None, description="interpreter of a separate environment for the server; None: the ranks' interpreter"
    )

    @field_validator("python")
    @classmethod
    def _without_tilde(cls, python: str | None) -> str | None:
        return str(Path(python).expanduser()) if python else None
