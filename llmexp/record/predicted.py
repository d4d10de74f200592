"""The rate that a plan expects before anything is measured, and how far such predictions were off."""

from __future__ import annotations

from pydantic import Field

from llmexp.record.samples import Record


class Prediction(Record):
    """The predicted rate of all devices together, in the plan's unit, and where a sample's time goes."""

    rate: float
    low: float = Field(description="lower end of the 90 % interval")
    high: float = Field(description="upper end of the 90 % interval")
    held_out_runs: int = Field(description="whose errors the interval comes from")
    source: str = Field(description="what the rates of the machine go by: runs on it, measured kernels, its data sheet")
    parts_s: dict[str, float] = Field(description="seconds of one sample by part")

    @property
    def most(self) -> str:
        """The part that takes most of the time."""
        return max(self.parts_s, key=lambda part: self.parts_s[part])

    @property
    def holds(self) -> tuple[float, float]:
        """The ends of the interval as shares of the rate."""
        return self.low / self.rate, self.high / self.rate
