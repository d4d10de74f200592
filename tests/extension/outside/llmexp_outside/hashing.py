"""A task of its own, for the driver: how fast bytes are digested.

conf/task/hash.yaml has its keys with their values, hashing_worker.py is its rank.
"""

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


# Its sections of the configuration: types and ranges are checked before anything starts.
class DigestConfig(Section):
    algorithm: str
    block_bytes: Annotated[int, Field(ge=1)]


class BlocksConfig(MeasureConfig):
    warmup_blocks: Annotated[int, Field(ge=1)]
    blocks: Annotated[int, Field(ge=1)]


class HashConfig(RunConfig):
    digest: DigestConfig
    measure: BlocksConfig


# A line of samples.<rank>.jsonl.
class Block(Sample):
    """A block that was digested."""

    digested_bytes: int

    # The work of a sample, in the unit of the rate.
    @property
    def amount(self) -> float:
        return self.digested_bytes

    # What is worth a curve, and goes to MLflow sample by sample.
    @property
    def values(self) -> dict[str, float]:
        return {"digested_bytes": self.digested_bytes}


class HashPlan(RunPlan):
    # The metric by which runs are judged, compared and their cost expected.
    rate = "bytes_per_s"
    # As in "block 3 of 45".
    sample_name = "block"

    config: HashConfig

    # What is compared: it names the run and its folder.
    @property
    def name_fields(self) -> dict[str, str]:
        return {"algorithm": self.config.digest.algorithm}

    # What runs must share for their rates to be compared; another value is another table.
    @property
    def comparison_key(self) -> dict[str, str]:
        return super().comparison_key | {"block_bytes": str(self.config.digest.block_bytes)}

    # What decides, with the name fields, how long a sample of an amount takes: by it costs are expected.
    @property
    def duration_key(self) -> dict[str, str]:
        return super().comparison_key

    # Of a repeat, warm-up included; progress and status show them.
    @property
    def samples(self) -> int:
        return self.config.measure.warmup_blocks + self.config.measure.blocks

    @property
    def measured_samples(self) -> int:
        return self.config.measure.blocks

    @property
    def amount(self) -> float:
        return self.config.digest.block_bytes


# The first argument is the unit, the second which direction is better; the docstring is the legend. See metrics.py.
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
    # The tasks that it does, the values of engine.launcher that start it, the modules that its ranks cannot do without,
    # and the distributions whose versions make a result stale.
    tasks = ("hash",)
    launchers = ("python",)
    modules = ()
    distributions = ()


class Hash(Task[HashConfig, HashPlan]):
    # As in its entry point and in conf/task/hash.yaml.
    name = "hash"
    config_type = HashConfig
    plan_type = HashPlan
    sample_type = Block
    metrics = METRICS

    # Everything is decided here. `identity` is the digest of what is measured; None of `skip` means that it runs.
    def plan(self, config: HashConfig) -> HashPlan:
        command = ranks_of(config, 1, WORKER)
        return HashPlan(
            id=identity(config, {}), processes=1, devices=1, engine_config={}, command=command, config=config
        )

    # What `llmexp plan` says besides, by label.
    def describe(self, plan: HashPlan) -> dict[str, str]:
        return {"digests": f"{plan.samples} blocks of {plan.config.digest.block_bytes} bytes"}

    # Further answers of a run, where it gives several. `Task` has more hooks, each with a default.
    def points(self, plan: HashPlan, repeats: Sequence[Repeat[Any, Any]]) -> list[ResultPoint]:
        halves = [(half, [_of_half(repeat, half) for repeat in repeats]) for half in (0, 1)]
        return [
            ResultPoint(params={"half": half}, metrics={"bytes_per_s": over_repeats(rates)}) for half, rates in halves
        ]


def _of_half(repeat: Repeat[Block, RankSummary], half: int) -> Measurement:
    blocks = [block for (block,) in repeat.measured[half * len(repeat.measured) // 2 :]]
    return Measurement(sum(block.amount for block in blocks) / sum(map(duration_s, blocks)))


HASH, HASHLIB = Hash(), HashlibEngine()
