"""A task of its own, for the driver: how fast bytes are digested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from llmexp.extend import (
    Engine,
    MeasureConfig,
    Measurement,
    Metrics,
    RankSummary,
    Repeat,
    ResultPoint,
    RunConfig,
    RunPlan,
    Sample,
    Section,
    Shown,
    Task,
    duration_s,
    identity,
    over_repeats,
    ranks_of,
)

WORKER = "llmexp_outside.hashing_worker"


class DigestConfig(Section):
    algorithm: str
    block_bytes: Annotated[int, Field(ge=1)]


class BlocksConfig(MeasureConfig):
    warmup_blocks: Annotated[int, Field(ge=1)]
    blocks: Annotated[int, Field(ge=1)]


class HashConfig(RunConfig):
    digest: DigestConfig
    measure: BlocksConfig


class Block(Sample):
    """A block that was digested."""

    digested_bytes: int

    @property
    def amount(self) -> float:
        return self.digested_bytes

    @property
    def values(self) -> dict[str, float]:
        return {"digested_bytes": self.digested_bytes}


class HashPlan(RunPlan):
    rate = "bytes_per_s"
    sample_name = "block"

    config: HashConfig

    @property
    def subject(self) -> dict[str, str]:
        return {"algorithm": self.config.digest.algorithm}

    @property
    def work(self) -> dict[str, str]:
        return super().work | {"block_bytes": str(self.config.digest.block_bytes)}

    @property
    def kind(self) -> dict[str, str]:
        return super().work

    @property
    def samples(self) -> int:
        return self.config.measure.warmup_blocks + self.config.measure.blocks

    @property
    def measured_samples(self) -> int:
        return self.config.measure.blocks

    @property
    def amount(self) -> float:
        return self.config.digest.block_bytes


METRICS = Metrics()


@METRICS.add("bytes/s", "higher")
def bytes_per_s(repeat: Repeat[Block, RankSummary], plan: HashPlan) -> Measurement:
    """Bytes digested a second, over the measured window."""
    blocks = [block for (block,) in repeat.measured]
    rates = tuple(block.amount / duration_s(block) for block in blocks)
    return Measurement(sum(block.amount for block in blocks) / repeat.ranks[0].window_wall_s, rates)


@METRICS.add("bits", column=Shown("digest bits", ",.0f"))
def digest_bits(repeat: Repeat[Block, RankSummary], plan: HashPlan) -> Measurement:
    """Length of a digest."""
    return Measurement(repeat.ranks[0].what_ran["digest_bits"])


class HashlibEngine(Engine[HashConfig]):
    name = "hashlib"
    tasks = ("hash",)
    launchers = ("python",)
    modules = ()
    distributions = ()


class Hash(Task[HashConfig, HashPlan]):
    name = "hash"
    config_type = HashConfig
    plan_type = HashPlan
    sample_type = Block
    metrics = METRICS

    def plan(self, config: HashConfig) -> HashPlan:
        command = ranks_of(config, 1, WORKER)
        return HashPlan(
            id=identity(config, {}), processes=1, devices=1, engine_config={}, command=command, config=config
        )

    def describe(self, plan: HashPlan) -> dict[str, str]:
        return {"digests": f"{plan.samples} blocks of {plan.config.digest.block_bytes} bytes"}

    def points(self, plan: HashPlan, repeats: Sequence[Repeat[Any, Any]]) -> list[ResultPoint]:
        halves = [(half, [_of_half(repeat, half) for repeat in repeats]) for half in (0, 1)]
        return [
            ResultPoint(params={"half": half}, metrics={"bytes_per_s": over_repeats(rates)}) for half, rates in halves
        ]


def _of_half(repeat: Repeat[Block, RankSummary], half: int) -> Measurement:
    blocks = [block for (block,) in repeat.measured[half * len(repeat.measured) // 2 :]]
    return Measurement(sum(block.amount for block in blocks) / sum(map(duration_s, blocks)))


HASH, HASHLIB = Hash(), HashlibEngine()
