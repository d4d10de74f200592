"""Continuous batching in its steady state: what a load gets out of a server, from the time of its iterations.

A request lives for as many iterations as it has output tokens. In some of these, prompts of others are read beside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, inf, log

from llmexp.serving.predict.held import Held
from llmexp.serving.predict.iteration import Iteration, IterationTime, iteration_time
from llmexp.serving.predict.rates import Rates

# Lengths of a burst that vary are taken to be exponential, cut at so many times their mean.
_LONGEST, _PARTS = 7.0, 10
# Bursts of so many full batches are endless loads.
_MANY = 5.0
# Requests in flight are known to this share of them, after at most so many steps.
_CLOSED, _STEPS = 1e-9, 50


@dataclass(frozen=True)
class Load:
    """What is sent; without rate and concurrency all requests come at once, and without a number there is no end."""

    prompt: float
    output: float
    varied: bool = False
    """Outputs differ in length, so that the last requests of a burst are few."""
    requests: int | None = None
    rate_per_s: float | None = None
    concurrency: int | None = None


@dataclass(frozen=True)
class Limits:
    """What a server takes: requests at a time, tokens of prompts in an iteration, and bytes of its cache a device."""

    requests: int
    prefill: int
    cache_bytes: float

    def at_once(self, held: Held, load: Load) -> float:
        """Return the most requests at a time that have room to grow; with more, some push others out."""
        each = held.cache_bytes(load.prompt + load.output)
        return max(1.0, min(float(self.requests), self.cache_bytes / each))


@dataclass(frozen=True)
class LoadOutcome:
    """What a load gets."""

    requests_per_s: float
    output_tokens_per_s: float
    tpot_s: float
    ttft_s: float
    life_s: float
    """From a request's first iteration to its last."""
    in_flight: float
    """Requests that are at work, without those that wait."""
    saturated: bool
    """Requests come faster than the server can answer them, or all at once."""
    spent: IterationTime
    """An iteration without prompts."""


@dataclass(frozen=True)
class Server:
    """A model on devices with their rates and limits."""

    held: Held
    rates: Rates
    limits: Limits

    def outcome(self, load: Load) -> LoadOutcome:
        """Return what a load gets."""
        most = self.limits.at_once(self.held, load)
        if load.rate_per_s is not None:
            return self._open(load, most)
        if load.concurrency is not None:
            return self._closed(load, float(load.concurrency), most)
        return self._burst(load, most)

    def saturation_per_s(self, load: Load) -> float:
        """Return the requests a second above which more and more of them wait."""
        most = self.limits.at_once(self.held, load)
        return most / self._life_s(load, most)

    def _open(self, load: Load, most: float) -> LoadOutcome:
        assert load.rate_per_s is not None
        rate, highest = load.rate_per_s, most / self._life_s(load, most)
        sent_s = load.requests / rate if load.requests else inf
        # Little's law: a request shares its iterations with all others in flight, itself beside them.
        others = _crossing(
            lambda others: rate * _beside_s(self._life_s(load, min(1 + others, most)), sent_s) - others, most
        )
        found = self._made(load, min(1 + others, most), min(rate, highest), saturated=rate >= highest)
        # Those beyond what there is room for wait until as many are answered.
        waiting = rate * _beside_s(self._life_s(load, most), sent_s) - most if load.requests else 0.0
        return _later(found, max(waiting, 0.0) / highest)

    def _closed(self, load: Load, sent: float, most: float) -> LoadOutcome:
        sent = min(sent, load.requests or inf)
        in_flight = min(sent, most)
        rate = in_flight / self._life_s(load, in_flight) * _full_share(load, in_flight)
        found = self._made(load, in_flight, rate, saturated=sent > most)
        # The first requests come at once, and wait for each other.
        first = self._in_turn_s(load, in_flight) * in_flight / load.requests if load.requests else 0.0
        return _later(found, (sent - in_flight) / rate + first)

    def _burst(self, load: Load, most: float) -> LoadOutcome:
        """Return a load that comes at once: full batches, and then ever smaller ones."""
        requests = float(load.requests or 0)
        if not requests or (not load.varied and requests >= _MANY * most):
            in_flight, rate = most, most / self._life_s(load, most)
        else:
            last = min(requests, most)
            seconds = (requests - last) / most * self._life_s(load, most) + self._drained_s(load, last)
            in_flight, rate = last, requests / seconds
        found = self._made(load, in_flight, rate, saturated=True)
        return _later(found, requests / 2 / rate if requests > most else in_flight / 2 * self._prompt_s(load, 0.0))

    def _drained_s(self, load: Load, requests: float) -> float:
        """Return the seconds of requests that start together and get no followers."""
        if not load.varied:
            return self._life_s(load, requests)
        reading = self._life_s(load, requests) - load.output * self._decode(load, requests).whole
        width = min(_LONGEST, _harmonic(requests)) * load.output / _PARTS
        steps = ((part + 0.5) * width for part in range(_PARTS))
        left = (max(1.0, requests * exp(-step / load.output)) for step in steps)
        return max(reading, 0.0) + sum(width * self._decode(load, each).whole for each in left)

    def _made(self, load: Load, in_flight: float, rate: float, *, saturated: bool) -> LoadOutcome:
        life = self._life_s(load, in_flight)
        own, between = self._prompt_s(load, in_flight - 1), max(load.output - 1, 0.0)
        tpot = (life - own) / between if between else 0.0
        busy = min(rate * own, 0.95)
        waiting = 0.5 * busy / (1 - busy) * own if load.rate_per_s else 0.0
        running = self._decode(load, in_flight)
        started = 0.5 * running.whole if in_flight >= 2 else 0.0
        # An only token comes at the end.
        ttft = self.rates.first_token_s + (own + waiting + started if between else life)
        return LoadOutcome(rate, rate * load.output, tpot, ttft, life, in_flight, saturated, running)

    def _life_s(self, load: Load, in_flight: float) -> float:
        """Return the seconds from a request's first iteration to its last, with so many in flight."""
        chunks = max(1.0, ceil(load.prompt / self.limits.prefill))
        steps = max(load.output + chunks - 1, in_flight * load.prompt / self.limits.prefill)
        decoding = in_flight * max(load.output - 1, 0.0) / steps
        with_prompts = min(in_flight * chunks, steps)
        each = in_flight * load.prompt / with_prompts
        mixed = self._iteration(load, decoding, each).whole
        return with_prompts * mixed + (steps - with_prompts) * self._iteration(load, decoding, 0.0).whole

    def _prompt_s(self, load: Load, beside: float) -> float:
        """Return the seconds in which a prompt is read, with so many others decoding."""
        chunks = max(1.0, ceil(load.prompt / self.limits.prefill))
        return chunks * self._iteration(load, max(beside, 0.0), load.prompt / chunks).whole

    def _in_turn_s(self, load: Load, requests: float) -> float:
        """Return how much longer than its own prompt takes a request waits, in the mean of many that come at once.

        An only token comes at the end of all that are in flight anyhow.
        """
        if load.output <= 1:
            return 0.0
        steps = max(1.0, ceil(requests * load.prompt / self.limits.prefill))
        reading = steps * self._iteration(load, 0.0, requests * load.prompt / steps).whole
        # Short prompts end several in a step, long ones after several steps.
        ends = max(1.0, min(steps, requests))
        return max(0.0, (ends + 1) / (2 * ends) * reading - self._prompt_s(load, 0.0))

    def _decode(self, load: Load, in_flight: float) -> IterationTime:
        return self._iteration(load, in_flight, 0.0)

    def _iteration(self, load: Load, decoding: float, prefill: float) -> IterationTime:
        work = Iteration(decoding, load.prompt + load.output / 2, prefill, load.prompt)
        return iteration_time(self.held, self.rates, work)


def _full_share(load: Load, in_flight: float) -> float:
    """Return the mean share of a closed load in flight: its last requests have no followers.

    Of so many lengths that are uniform up to twice their mean, the longest is expected at 2 n / (n + 1) means.
    """
    if not load.varied or not load.requests:
        return 1.0
    rounds, longest = load.requests / in_flight, 2 * in_flight / (in_flight + 1)
    return rounds / (rounds - 1 + longest)


def _harmonic(count: float) -> float:
    """Return 1 + 1/2 + ... + 1/count, the longest of so many exponential lengths in means (Euler and Maclaurin)."""
    return log(count) + 0.5772 + 1 / (2 * count) - 1 / (12 * count**2) if count > 1 else 1.0


def _beside_s(life_s: float, sent_s: float) -> float:
    """Return the mean seconds in which a request that is in flight sees others sent.

    In flight are ever more requests while the first ones last, and ever fewer after the last one was sent: a trapezoid
    over time, whose mean is taken by requests.
    """
    short, long = sorted((life_s, sent_s))
    return short * (1 - short / long / 3)


def _crossing(gap: Callable[[float], float], high: float) -> float:
    """Return where a gap that is open at 0 closes, at most at `high`: regula falsi, in the way of Illinois."""
    low, at_low, at_high = 0.0, gap(0.0), gap(high)
    middle, moved = high, ""
    for _ in range(_STEPS if at_high < 0 else 0):
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        found = gap(middle)
        if abs(found) < _CLOSED * (1 + middle):
            break
        # An end that stays twice counts half, or it would never move.
        if found > 0:
            low, at_low, at_high, moved = middle, found, at_high / (2 if moved == "low" else 1), "low"
        else:
            high, at_high, at_low, moved = middle, found, at_low / (2 if moved == "high" else 1), "high"
    return middle


def _later(found: LoadOutcome, waited_s: float) -> LoadOutcome:
    return LoadOutcome(**{**vars(found), "ttft_s": found.ttft_s + waited_s})
