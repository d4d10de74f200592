"""Pipeline schedules: how many stages each has on a rank, and for how many passes an engine can lay it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from llmexp.errors import ConfigError


@dataclass(frozen=True)
class Schedule:
    """Stages of each rank, `most` None for any number; in a V the second half of the stages goes back from the last rank to the first."""

    least: int
    most: int | None
    v_shaped: bool = False

    def takes(self, stages: int) -> bool:
        """Whether a rank may have so many."""
        return self.least <= stages <= (self.most or stages)

    @property
    def words(self) -> str:
        """How many, for people."""
        return (
            f"{self.least} stage{'s' * (self.least > 1)}" if self.least == self.most else f"{self.least} or more stages"
        )


SCHEDULES: dict[str, Schedule] = {
    "gpipe": Schedule(1, 1),
    "1f1b": Schedule(1, 1),
    "interleaved": Schedule(2, None),
    "looped_bfs": Schedule(2, None),
    "zero_bubble": Schedule(1, None),
    "zbv": Schedule(2, 2, v_shaped=True),
    "dualpipev": Schedule(2, 2, v_shaped=True),
}


@dataclass(frozen=True)
class Pipeline:
    """What a schedule is laid out for: the passes of a step, through `virtual_stages` stages on each of pp ranks."""

    schedule: str
    pp: int
    virtual_stages: int
    passes: int

    @property
    def stages(self) -> int:
        """Of the whole pipeline."""
        return self.pp * self.virtual_stages

    @property
    def rounds(self) -> int:
        """Of about pp passes each."""
        return max(1, self.passes // self.pp)


@dataclass(frozen=True)
class Passes:
    """A condition on the passes of a step, and how it is said."""

    hold: Callable[[Pipeline], bool]
    words: Callable[[Pipeline], str]


ANY = Passes(lambda _: True, lambda _: "any number of passes")
NO_FEWER_THAN_STAGES = Passes(
    lambda p: p.passes >= p.stages, lambda p: f"no fewer passes than pp {p.pp} x {p.virtual_stages} = {p.stages} stages"
)
GROUPS_OF_PP = Passes(lambda p: p.passes % p.pp == 0, lambda p: f"passes in groups of pp {p.pp}")
EVEN_ROUNDS = Passes(
    lambda p: p.passes % p.rounds == 0,
    lambda p: f"passes in {p.passes} // pp {p.pp} = {p.rounds} rounds that come out even",
)


def default_schedule(virtual_stages: int) -> str:
    """What every engine with pipelines runs unasked."""
    return "1f1b" if virtual_stages == 1 else "interleaved"


def check(pipeline: Pipeline, rules: Mapping[str, Passes]) -> None:
    """Raise ConfigError where the stages are not the schedule's, or the passes none that the engine can lay out; without a rule any will do."""
    _check_stages(pipeline)
    rule = rules.get(pipeline.schedule, ANY)
    if not rule.hold(pipeline):
        nearest = " or ".join(f"batch.accumulation={passes}" for passes in _nearest(pipeline, rule))
        wrong = f"takes {rule.words(pipeline)}, not batch.accumulation={pipeline.passes}"
        raise ConfigError(f"parallelism.schedule={pipeline.schedule} {wrong}: set {nearest}")


def _check_stages(pipeline: Pipeline) -> None:
    schedule, stages = SCHEDULES[pipeline.schedule], pipeline.virtual_stages
    if schedule.takes(stages):
        return
    others = ", ".join(name for name, other in SCHEDULES.items() if other.takes(stages))
    raise ConfigError(
        f"parallelism.schedule={pipeline.schedule} has {schedule.words} on a rank, and parallelism.virtual_stages={stages}: "
        f"set parallelism.virtual_stages={schedule.least}, or one of the schedules for {stages}: {others}"
    )


def _nearest(pipeline: Pipeline, rule: Passes) -> Iterable[int]:
    """The nearest number of passes below and above that will do; none below is left out."""

    def valid(passes: int) -> bool:
        return rule.hold(replace(pipeline, passes=passes))

    below = next(filter(valid, range(pipeline.passes - 1, 0, -1)), None)
    above = next(filter(valid, range(pipeline.passes + 1, pipeline.passes + pipeline.stages + pipeline.pp + 1)))
    return [above] if below is None else [below, above]
