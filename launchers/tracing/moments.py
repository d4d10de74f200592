"""A step's fullest moments, by part, out of a ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from llmexp.launchers.tracing.ledger import Ledger
from llmexp.training.plan.traced_memory import TracedMoment, TracedStep


@dataclass
class StepMoments:
    """The places in a ledger's changes where the phases of steps end."""

    ledger: Ledger
    marks: list[tuple[str, int]] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    """What forward passes have left for backward."""
    _begun: int = 0

    def begin_step(self) -> None:
        """Mark the beginning of a step, once its batch is there."""
        self._mark("begin")

    def end_phase(self, phase: str) -> None:
        """Mark the end of a phase; what forward has made and what lives then is kept for backward."""
        if phase == "forward":
            self.kept |= {number for number in self.ledger.living() if number >= self._begun}
        self._mark(phase)

    def steps(self) -> list[TracedStep]:
        """Return the moments of each step, replayed with what is known by now of what memory was used for."""
        steps: list[dict[str, TracedMoment]] = []
        now: Counter[str] = Counter()
        place = 0
        for phase, end in self.marks:
            fullest, place = self._replay(place, end, now), end
            if phase == "begin":
                steps.append({})
                continue
            _keep_fuller(steps[-1], "update" if phase == "optimizer" else "passes", fullest)
            if phase == "forward":
                _keep_fuller(steps[-1], "forward_end", _moment(now))
        return [TracedStep(**moments) for moments in steps]

    def _replay(self, place: int, end: int, now: Counter[str]) -> TracedMoment:
        """Go on to `end` and return the fullest moment on the way, the first one among it."""
        together = sum(now.values())
        most, fullest = together, Counter(now)
        for change in self.ledger.changes[place:end]:
            now[self._part(change.memory)] += change.bytes
            together += change.bytes
            if together > most:
                most, fullest = together, Counter(now)
        return _moment(fullest)

    def _part(self, number: int) -> str:
        if said := self.ledger.parts.get(number):
            return said
        if number in self.ledger.engines:
            return "engine"
        return "activations" if number in self.kept else "temporary"

    def _mark(self, phase: str) -> None:
        self.marks.append((phase, len(self.ledger.changes)))
        self._begun = self.ledger.made


def _keep_fuller(moments: dict[str, TracedMoment], name: str, found: TracedMoment) -> None:
    if name not in moments or found.together > moments[name].together:
        moments[name] = found


def _moment(parts: Counter[str]) -> TracedMoment:
    return TracedMoment(**parts)
