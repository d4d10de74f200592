"""What the requests of a load point say together: whether its figures count, and whether the server kept up.

The load client judges a search's probes by it while it measures, and the report by the records afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmexp.record.result import PointVerdict
from llmexp.serving.analysis.attainment import attainment, fewest_requests
from llmexp.serving.analysis.backlog import Load
from llmexp.serving.analysis.request_latency import Objective
from llmexp.serving.analysis.saturation import saturation
from llmexp.serving.analysis.saturation_point import holds
from llmexp.serving.record.requests import RequestSample

LOAD, OBJECTIVE = "load", "objective"
# The requests of each repeat, in the order in which they were due.
Repeats = Sequence[Sequence[RequestSample]]


def in_order(samples: Sequence[RequestSample]) -> list[RequestSample]:
    """Return requests in the order in which they were due."""
    return sorted(samples, key=lambda sample: (sample.scheduled_s, sample.index))


def judgment(repeats: Repeats, objective: Objective | None) -> dict[str, PointVerdict]:
    """Judge an open load of a constant rate, by the question: of single requests, or of conversations."""
    in_turns = any(sample.turn for samples in repeats for sample in samples)
    loads = [(Load.of_conversations if in_turns else Load.of)(samples) for samples in repeats]
    kept_up = saturation(loads)
    found = {LOAD: PointVerdict(answer=kept_up.verdict, reasons=kept_up.reasons)}
    if objective:
        used = [[objective.used_by(sample) for sample in samples] for samples in repeats]
        kept = attainment(used, fewest=fewest_requests([load.due_s for load in loads]))
        found[OBJECTIVE] = PointVerdict(
            answer=kept.verdict, reasons=kept.reasons, more_requests_tell=kept.more_requests_tell
        )
    return found


def why_never_known(judged: Mapping[str, PointVerdict]) -> str:
    """Say why no number of requests would tell whether a load holds; an empty string where some would, or it is known.

    The verdicts are those of `judgment`.
    """
    if holds(verdict.answer for verdict in judged.values()) is not None:
        return ""
    return next((verdict.reasons[0] for verdict in judged.values() if not verdict.more_requests_tell), "")


def why_no_figures(repeats: Repeats) -> str:
    """Say why figures of these requests would mislead, or return an empty string."""
    return _unanswered(repeats) or _other_work(repeats)


def _unanswered(repeats: Repeats) -> str:
    for samples in repeats:
        problems = [sample.problem for sample in samples if sample.problem]
        if len(problems) == len(samples):
            return f"no request got a complete answer: {problems[0] if problems else 'none was sent'}"
    return ""


def _other_work(repeats: Repeats) -> str:
    """Say how many answers are not what was asked for; figures of other work would mislead."""
    each = [sample for samples in repeats for sample in samples]
    odd = [sample.differences for sample in each if sample.differences]
    return f"{len(odd)} of {len(each)} answers are not what was asked for: {odd[0][0]}" if odd else ""
