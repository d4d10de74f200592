"""A training that somebody means to run, stated by its tokens or epochs: `--for tokens=300e9`, `--for epochs=3`."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from llmexp.errors import ConfigError, unknown
from llmexp.record.digits import rounded
from llmexp.record.duration import duration

TOKENS, EPOCHS = "tokens", "epochs"
KINDS = (TOKENS, EPOCHS)
SECONDS_AN_HOUR, JOULES_A_KWH = 3600.0, 3.6e6
EXAMPLES = "write --for tokens=300e9, or --for epochs=3"


@dataclass(frozen=True)
class TrainingCost:
    """What a training takes: its time on all devices, and money where a device has a price."""

    time_s: float
    devices: int
    price_per_device_hour_usd: float | None

    @property
    def device_hours(self) -> float:
        """Hours of all devices together."""
        return self.time_s * self.devices / SECONDS_AN_HOUR

    @property
    def usd(self) -> float | None:
        """Their price."""
        return None if self.price_per_device_hour_usd is None else self.device_hours * self.price_per_device_hour_usd

    @property
    def words(self) -> str:
        """The time, the device-hours and the money in words."""
        money = "" if self.usd is None else f", {rounded(self.usd)} USD"
        devices = f"{self.devices} device{'s' * (self.devices > 1)}"
        return f"{duration(self.time_s)} on {devices}, {rounded(self.device_hours)} device-hours{money}"


@dataclass(frozen=True)
class TrainingBudget:
    """So many tokens, or so many passes over the records of the data; `said` is the number as it was typed."""

    kind: str
    amount: float
    said: str

    @property
    def words(self) -> str:
        """The training in words."""
        return f"{self.said} {self.kind.removesuffix('s') if self.amount == 1 else self.kind}"


def read_training_budget(text: str) -> TrainingBudget:
    """Read tokens=300e9 or epochs=3; raises ConfigError with one line."""
    kind, _, value = text.partition("=")
    if kind not in KINDS:
        raise ConfigError(f"--for {text}: {unknown('training', kind, KINDS)}; {EXAMPLES}")
    try:
        amount = float(value)
    except ValueError:
        raise ConfigError(f"--for {text}: '{value}' is not a number; {EXAMPLES}") from None
    if not (isfinite(amount) and amount > 0):
        raise ConfigError(f"--for {text}: must be a finite number of {kind} above 0; {EXAMPLES}")
    return TrainingBudget(kind, amount, value)
