"""The rate that a plan expects before anything is measured, and how far such predictions were off."""

from __future__ import annotations

from pydantic import Field

from llmexp.record.samples import Record

# Of fewer held-out runs the worst one alone would be the end of a 90 % interval.
ENOUGH_HELD_OUT = 20
TOO_FEW = "too few runs like it were held out"


class PredictedLoad(Record):
    """What one load is expected to get of a server, with the ends of 90 % intervals."""

    load: str
    rate: float = Field(description="output tokens/s of all devices together")
    low: float
    high: float
    tpot_s: float = Field(description="time per output token after the first")
    tpot_low_s: float
    tpot_high_s: float
    ttft_s: float = Field(description="time to the first token, waiting included")
    ttft_low_s: float
    ttft_high_s: float
    in_flight: float = Field(description="requests that are at work on average, without those that wait")
    saturated: bool = Field(description="more requests than the server has room for, or all at once")


class Prediction(Record):
    """The predicted rate of all devices together, in the plan's unit, and where a sample's time goes."""

    rate: float
    low: float = Field(description="lower end of the 90 % interval")
    high: float = Field(description="upper end of the 90 % interval")
    held_out_runs: int = Field(description="whose errors the interval comes from")
    source: str = Field(description="what the rates of the machine go by: runs on it, measured kernels, its data sheet")
    parts_s: dict[str, float] = Field(description="seconds of one sample by part")
    work_s: float | None = Field(
        None, description="of one repeat's warm-up and samples; None: their amount over the rate"
    )
    loads: list[PredictedLoad] = Field(default_factory=list, description="of a server, as the load points are ordered")
    saturation_per_s: float | None = Field(
        None, description="requests/s above which more and more of a server's requests wait"
    )
    calibrated_by: int = Field(0, description="the measured runs whose errors corrected it")
    multipliers: dict[str, float] = Field(
        default_factory=dict, description="of the time of each class of terms, by these runs; empty: none"
    )
    uncalibrated: float | None = Field(None, description="the rate without them; None where it is the same")

    @property
    def most(self) -> str:
        """The part that takes most of the time."""
        return max(self.parts_s, key=lambda part: self.parts_s[part])

    @property
    def holds(self) -> tuple[float, float]:
        """The ends of the interval as shares of the rate."""
        return self.low / self.rate, self.high / self.rate

    @property
    def tells_share(self) -> bool:
        """Tell whether enough runs were held out to say how many of ten measured rates lie in the interval."""
        return self.held_out_runs >= ENOUGH_HELD_OUT

    @property
    def page(self) -> str:
        """The page that says how far off such predictions are."""
        return "docs/prediction.md" if self.saturation_per_s is None else "docs/serving.md"
