"""What the ranks of a run of microbenchmarks write: a line of samples.<rank>.jsonl for each point."""

from __future__ import annotations

from statistics import median

from pydantic import ConfigDict, Field

from llmexp.record.samples import Sample


class CallSample(Sample):
    """One point of a microbenchmark: the times of its samples, each the mean of several calls where these are short."""

    times_s: list[float] = Field(description="of one call, a value a sample; empty where there is a problem")
    calls: int = Field(1, description="in each sample")
    input_sets: int = Field(
        1, description="sets of inputs that calls take in turn, so that no cache holds the next one"
    )
    problem: str = Field("", description="why the point could not be measured")
    what_ran: str = Field("", description="the kernel or backend, where there are several")
    sm_clock_megahertz: float | None = Field(None, description="after the point, cuda only")
    temperature_celsius: float | None = Field(None, description="after the point, cuda only")

    model_config = ConfigDict(extra="forbid")

    @property
    def median_s(self) -> float:
        """The median time of a call; raises StatisticsError where there is a problem."""
        return median(self.times_s)

    @property
    def values(self) -> dict[str, float]:
        """The median time of a call."""
        return {"call_time_s": self.median_s} if self.times_s else {}
