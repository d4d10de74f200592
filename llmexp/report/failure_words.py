"""What fails in a training that somebody means to run: `--failures mtbf_h=llama3,restart_s=600,checkpoint_s=30`."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from llmexp.errors import ConfigError, unknown

# Device-hours between failures, and where they are published. A name is written in the place of a number.
PUBLISHED_MTBF = {
    "llama3": (54 * 24 * 16384 / 419, "419 unexpected interruptions in 54 days on 16,384 H100, arXiv 2407.21783"),
}
MTBF, RESTART, BANDWIDTH, CHECKPOINT, EVERY = KEYS = (
    "mtbf_h",
    "restart_s",
    "checkpoint_bytes_per_s",
    "checkpoint_s",
    "every_s",
)
_EXAMPLE = "write --failures mtbf_h=50000,restart_s=600,checkpoint_bytes_per_s=2e12"


@dataclass(frozen=True)
class FailureAssumptions:
    """What a person assumes of failures; nothing of it has a default but the best interval between checkpoints."""

    mtbf_device_h: float
    """Mean hours between failures of one device, with its share of node and network."""
    source: str
    """Where that is published; empty where it was typed."""
    restart_s: float
    checkpoint_bytes_per_s: float | None
    """At which all ranks together write a checkpoint; None where `checkpoint_s` says how long that takes."""
    checkpoint_s: float | None
    every_s: float | None
    """Seconds of training between checkpoints; None: at which most time counts."""


def read_failures(text: str) -> FailureAssumptions:
    """Read key=value pairs with commas between them; raises ConfigError with one line."""
    given = dict(_pair(text, part) for part in text.split(","))
    _check(text, given)
    mtbf_h, source = PUBLISHED_MTBF.get(given[MTBF], (None, ""))
    numbers = {key: _number(text, key, value) for key, value in given.items() if key != MTBF or mtbf_h is None}
    return FailureAssumptions(
        mtbf_device_h=mtbf_h or numbers[MTBF],
        source=source,
        restart_s=numbers[RESTART],
        checkpoint_bytes_per_s=numbers.get(BANDWIDTH),
        checkpoint_s=numbers.get(CHECKPOINT),
        every_s=numbers.get(EVERY),
    )


def _pair(text: str, part: str) -> tuple[str, str]:
    key, _, value = part.strip().partition("=")
    if key not in KEYS:
        raise ConfigError(f"--failures {text}: {unknown('key', key, KEYS)}; {_EXAMPLE}")
    return key, value


def _check(text: str, given: dict[str, str]) -> None:
    lacking = [key for key in (MTBF, RESTART) if key not in given]
    if lacking:
        raise ConfigError(f"--failures {text}: without {' and '.join(lacking)}, which nobody can guess; {_EXAMPLE}")
    if (BANDWIDTH in given) == (CHECKPOINT in given):
        raise ConfigError(
            f"--failures {text}: takes either {BANDWIDTH}, at which all ranks together write a checkpoint, or "
            f"{CHECKPOINT}, for which it stops them; {_EXAMPLE}"
        )


def _number(text: str, key: str, value: str) -> float:
    names = f" or one of {', '.join(PUBLISHED_MTBF)}" * (key == MTBF)
    try:
        number = float(value)
    except ValueError:
        raise ConfigError(f"--failures {text}: {key}='{value}' is not a number{names}; {_EXAMPLE}") from None
    if not (isfinite(number) and number > 0):
        raise ConfigError(f"--failures {text}: {key} must be a finite number above 0{names}; {_EXAMPLE}")
    return number
