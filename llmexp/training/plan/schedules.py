"""The pipeline schedules: how many stages each has on a rank, and which numbers of passes an engine can run with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from llmexp.errors import ConfigError


@dataclass(frozen=True)
class Schedule:
    """The number of stages that a schedule has on each rank, from `least` to `most`; None means any number.

    In a V-shaped schedule, the second half of the stages goes back from the last rank to the first.
    """

    least: int
    most: int | None
    v_shaped: bool = False

    def takes(self, stages: int) -> bool:
        """Tell whether a rank may have this many stages."""
        return self.least <= stages <= (self.most or stages)

    @property
    def words(self) -> str:
        """The number of stages in words."""
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
    """A pipeline and its load: the passes of a step go through `virtual_stages` stages on each of pp ranks."""

    schedule: str
    pp: int
    virtual_stages: int
    passes: int

    @property
    def stages(self) -> int:
        """The number of stages of the whole pipeline."""
        return self.pp * self.virtual_stages

    @property
    def rounds(self) -> int:
        """The number of rounds of about pp passes each."""
        return max(1, self.passes // self.pp)


@dataclass(frozen=True)
class Passes:
    """A condition on the number of passes in a step, and its words."""

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
    """Return the schedule that every engine with pipelines runs by default."""
    return "1f1b" if virtual_stages == 1 else "interleaved"


def check(pipeline: Pipeline, rules: Mapping[str, Passes]) -> None:
    """Raise ConfigError where the schedule does not take this number of stages, or the engine this number of passes.

    A schedule without a rule takes any number of passes.
    """
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
        f"parallelism.schedule={pipeline.schedule} has {schedule.words} on a rank, and "
        f"parallelism.virtual_stages={stages}: set parallelism.virtual_stages={schedule.least}, "
        f"or one of the schedules for {stages}: {others}"
    )


def _nearest(pipeline: Pipeline, rule: Passes) -> Iterable[int]:
    """Return the nearest valid numbers of passes below, where there is one, and above."""

    def valid(passes: int) -> bool:
        return rule.hold(replace(pipeline, passes=passes))

    below = next(filter(valid, range(pipeline.passes - 1, 0, -1)), None)
    above = next(filter(valid, range(pipeline.passes + 1, pipeline.passes + pipeline.stages + pipeline.pp + 1)))
    return [above] if below is None else [below, above]
