"""What the review prints of its two case studies."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = 'the review "Achieving Peak Performance for Large Language Models", case studies'
DAY_S, HOUR_S = 86_400, 3_600
# Both count their originals in 16 bits.
ORIGINAL_BITS = 16


@dataclass(frozen=True)
class CaseStudy:
    """A system as the review has it: the model, its weights, what was left of it, and the most time that it took."""

    name: str
    model: str
    weights: float
    time_s: float
    in_time: str
    zeros: str = ""
    removed: str = ""
    bits: str = ""
    smaller: str = ""
    gigabytes: str = ""
    beside: str = ""

    @property
    def weights_per_s(self) -> float:
        """The weights a second that the printed time is at least."""
        return self.weights / self.time_s

    def gigabytes_at(self, bits: float) -> float:
        """Return the size of this model at so many bits a weight."""
        return self.weights * bits / 8 / 1e9


SPARSEGPT = CaseStudy(
    name="SparseGPT",
    model="a model of 175 billion weights",
    weights=175e9,
    time_s=4.5 * HOUR_S,
    in_time="under 4.5 h",
    zeros="50 to 60",
    removed="over 100",
)
QMOE = CaseStudy(
    name="QMoE",
    model="SwitchTransformer-c2048 with 1.6 trillion weights, 3,200 GB",
    weights=1.6e12,
    time_s=DAY_S,
    in_time="within a day on one GPU",
    bits="0.8",
    smaller="20",
    gigabytes="under 160",
    beside="under 5 % slower than without compression",
)
