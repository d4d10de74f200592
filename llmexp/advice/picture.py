"""The picture of a ranking: what options need of a device's memory against how fast they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from llmexp.advice.option import Option
from llmexp.advice.ranking import Ranking
from llmexp.record.digits import GIB, rounded
from llmexp.report.page.chart import Chart, ChartTrace

NAMED = 3
# The intervals of more options would cover each other.
WITH_INTERVAL = 10
# What needs more than this many times the memory is no neighbor of what fits, and would leave it no room.
NEAR, MOST_NEAR = 1.25, 10
# The place of a gray mark in the page's style.
_GRAY = 5
_DOUBTS = {"yes": "", "uncertain": ", may not fit"}
_WHISKERS = f"Whiskers, of the first {WITH_INTERVAL} and of what may not fit, hold 9 of 10 measured speeds."


def pictures(ranking: Ranking) -> list[Chart]:
    """Return speed over memory, and where money decides also tokens for a dollar; none where no memory is known."""
    charts = [_Picture(ranking, "Speed against memory", "tokens/s of all devices", lambda one: one.rate)]
    if ranking.goal.name == "tokens_per_usd":
        title = "Tokens for a dollar against memory"
        charts.append(_Picture(ranking, title, "tokens/USD", lambda one: one.tokens_per_usd or 0.0))
    return [picture.chart for picture in charts if picture.options]


@dataclass(frozen=True)
class _Picture:
    ranking: Ranking
    title: str
    unit: str
    value: Callable[[Option], float]

    @property
    def chart(self) -> Chart:
        return Chart(
            self.title,
            "GiB that a device needs",
            self.unit,
            [self._trace(*group) for group in self._groups()],
            self._note,
            limits=list(self._limits()),
            whiskers=_WHISKERS,
        )

    @cached_property
    def options(self) -> list[Option]:
        """The options that are drawn; of those that do not fit, the ones that lack a little of a device's memory."""
        near = [one for one in self.ranking.misfits if one.fit and 1 < one.fit.need / one.fit.capacity <= NEAR]
        return [one for one in [*self.ranking.sure, *self.ranking.perhaps, *near[:MOST_NEAR]] if one.fit]

    @property
    def _note(self) -> str:
        doubts = any(one.verdict != "yes" for one in self.options)
        empty = " Empty marks may not fit, or do not." * doubts
        return f"Numbers are those of the table. Shaded is more than a device has.{empty}"

    @cached_property
    def _names(self) -> dict[str, str]:
        """The numbers of the first options in the table, with what tells their runs apart, by ids of plans."""
        fields = [one.plan.name_fields for one in self.options]
        apart = [key for key in fields[0] if len({each.get(key) for each in fields}) > 1] if fields else []
        first = [*self.ranking.sure, *self.ranking.perhaps][:NAMED]
        return {
            one.plan.id: " ".join([str(number), *(one.plan.name_fields[key] for key in apart)])
            for number, one in enumerate(first, 1)
        }

    @cached_property
    def _with_interval(self) -> set[str]:
        return {one.plan.id for one in [*self.ranking.sure[:WITH_INTERVAL], *self.ranking.perhaps]}

    def _groups(self) -> Iterator[tuple[str, int, list[Option]]]:
        """Yield options that look alike: of one machine, the same or other mathematics, and as sure to fit."""
        machines = list(dict.fromkeys(one.machine for one in self.options))
        kinds = [(machine, changed) for machine in machines for changed in (False, True)]
        for look, (machine, changed) in enumerate(kinds):
            where = f"{_named(machine, machines)}, " * (len(machines) > 1)
            what = "changes the mathematics" if changed else "the plain mathematics"
            for verdict, doubt in _DOUBTS.items():
                alike = (machine, changed, verdict)
                if own := [one for one in self.options if (one.machine, bool(one.changes), one.verdict) == alike]:
                    yield f"{where}{what}{doubt}", look, own
        if misfits := [one for one in self.options if one.verdict == "no"]:
            yield "does not fit", _GRAY, misfits

    def _trace(self, name: str, look: int, options: Sequence[Option]) -> ChartTrace:
        return ChartTrace(
            name,
            [one.fit.need / GIB if one.fit else 0.0 for one in options],
            [self.value(one) for one in options],
            [" ".join(one.plan.overrides) for one in options],
            [self._interval(one) for one in options],
            "markers",
            [self._names.get(one.plan.id, "") for one in options],
            look=look,
            hollow=options[0].verdict != "yes",
        )

    def _interval(self, option: Option) -> tuple[float, float] | None:
        """Return the ends in the picture's unit; what was measured has none."""
        if option.measured or option.plan.id not in self._with_interval:
            return None
        low, high = option.interval
        return low / option.rate * self.value(option), high / option.rate * self.value(option)

    def _limits(self) -> Iterator[tuple[str, float]]:
        """Yield what devices have, each amount once, with the names of the machines that have it."""
        found: dict[float, dict[str, None]] = {}
        for one in self.options:
            if one.fit:
                found.setdefault(one.fit.capacity / GIB, {})[one.plan.config.hardware.name] = None
        for capacity in sorted(found):
            yield f"{', '.join(found[capacity])}: {rounded(capacity)} GiB", capacity


def _named(machine: tuple[str, int], machines: Sequence[tuple[str, int]]) -> str:
    """Return a machine's name, with its devices where another one differs in these alone."""
    name, devices = machine
    return f"{devices} {name}" if sum(name == other for other, _ in machines) > 1 else name
