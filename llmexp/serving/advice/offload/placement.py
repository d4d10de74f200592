"""A split of a model's bytes over device, host and disk, whether it fits, and how long a block of requests takes."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.serving.advice.offload.machine import OffloadedModel, OffloadMachine

# Of a token's hidden state in bytes: query, key, value, output and the wide layer of the MLP live together.
_WORK_SHARE = 10


@dataclass(frozen=True)
class TierShares:
    """The shares of something on the device and in the host's memory; the rest lies on the disk."""

    device: float
    host: float

    @property
    def disk(self) -> float:
        """The share on the disk."""
        return max(1.0 - self.device - self.host, 0.0)

    def __str__(self) -> str:
        return f"{self.device:.0%} / {self.host:.0%} / {self.disk:.0%}"


@dataclass(frozen=True)
class OfflineRequests:
    """Requests that are all there, with prompts and outputs of so many tokens."""

    prompt: int
    output: int

    @property
    def context(self) -> float:
        """The mean tokens of a request while it is decoded."""
        return self.prompt + self.output / 2


@dataclass(frozen=True)
class OffloadPlacement:
    """A block is `batches` batches of `batch` requests each; all of them pass a layer before the next layer."""

    weights: TierShares
    cache: TierShares
    batch: int
    batches: int
    attends_on_host: bool = True
    """Keys and values that are not on the device are attended to by the host's cores, and do not cross the link."""

    @property
    def requests(self) -> int:
        """The requests of a block."""
        return self.batch * self.batches


@dataclass(frozen=True)
class OffloadTime:
    """Seconds of one block by what its longest part waits for, and what its tokens come to."""

    parts_s: dict[str, float]
    tokens_per_s: float

    @property
    def most(self) -> str:
        """What most of the time goes to."""
        return max(self.parts_s, key=lambda part: self.parts_s[part])


def held_by(model: OffloadedModel, asked: OfflineRequests, placement: OffloadPlacement) -> tuple[float, float, float]:
    """Return the bytes on the device, in the host's memory and on the disk, with the buffers of two layers."""
    weights, cache = placement.weights, placement.cache
    all_weights = model.layers * model.weights
    tokens = asked.prompt + asked.output
    kept = model.layers * model.kept_per_token * tokens * placement.requests
    moving = 2 * model.weights * (1 - weights.device) + _WORK_SHARE * model.hidden * asked.prompt * placement.batch
    device = model.outside + weights.device * all_weights + cache.device * kept + moving
    hidden = model.hidden * asked.prompt * placement.requests
    host = weights.host * all_weights + cache.host * kept + hidden + model.weights * (weights.disk > 0)
    return device, host, weights.disk * all_weights + cache.disk * kept


def fits(machine: OffloadMachine, model: OffloadedModel, asked: OfflineRequests, placement: OffloadPlacement) -> bool:
    """Tell whether every tier has room."""
    room = (machine.device_bytes, machine.host_bytes, machine.disk_bytes)
    return all(held <= most for held, most in zip(held_by(model, asked, placement), room, strict=True))


def block_time(
    machine: OffloadMachine, model: OffloadedModel, asked: OfflineRequests, placement: OffloadPlacement
) -> OffloadTime:
    """Return the time of a block: its prompts once, then an iteration for each further token."""
    reading = _prompts_s(machine, model, asked, placement)
    decoding = _decoding_s(machine, model, asked, placement)
    steps = asked.output - 1
    seconds = model.layers * (sum(reading.values()) + steps * sum(decoding.values()))
    names = dict.fromkeys((*reading, *decoding))
    parts = {name: model.layers * (reading.get(name, 0.0) + steps * decoding.get(name, 0.0)) for name in names}
    return OffloadTime(parts, placement.requests * asked.output / seconds)


def _prompts_s(
    machine: OffloadMachine, model: OffloadedModel, asked: OfflineRequests, placement: OffloadPlacement
) -> dict[str, float]:
    """Return the seconds of a layer over all prompts: computing hides copies, or copies hide computing."""
    tokens, weights, cache = asked.prompt * placement.requests, placement.weights, placement.cache
    hidden, kept = model.hidden * tokens, model.kept_per_token * tokens
    each = {
        "computing": model.flops_per_token * tokens / machine.flops_per_s,
        "host link": max(model.weights * (1 - weights.device) + hidden, kept * (1 - cache.device) + hidden)
        / machine.link_per_s,
        "disk": model.weights * weights.disk / machine.read_per_s + kept * cache.disk / machine.write_per_s,
    }
    return _longest(each)


def _decoding_s(
    machine: OffloadMachine, model: OffloadedModel, asked: OfflineRequests, placement: OffloadPlacement
) -> dict[str, float]:
    """Return the seconds of a layer over one token of each request.

    The disk is read ahead; copies, the host's attention and the device follow each other, as was seen of FlexGen.
    """
    requests, weights, cache = placement.requests, placement.weights, placement.cache
    kept = model.kept_per_token * asked.context * requests
    away = kept * (1 - cache.device)
    crossing = model.weights * (1 - weights.device) + 2 * model.hidden * requests
    here = kept if not placement.attends_on_host else kept * cache.device
    reading = max(placement.batches * model.weights / machine.memory_per_s, _products_s(machine, model, requests))
    seconds = {
        "computing": reading + here / machine.memory_per_s,
        "host link": (crossing + away * (not placement.attends_on_host)) / machine.link_per_s,
        "the host's attention": away * placement.attends_on_host / machine.host_attention_per_s,
    }
    disk = (model.weights * weights.disk + kept * cache.disk) / machine.read_per_s
    return {"disk": disk} if disk > sum(seconds.values()) else seconds


def _products_s(machine: OffloadMachine, model: OffloadedModel, tokens: int) -> float:
    return model.flops_per_token * tokens / machine.flops_per_s


def _longest(seconds: dict[str, float]) -> dict[str, float]:
    name = max(seconds, key=lambda part: seconds[part])
    return {name: seconds[name]}
