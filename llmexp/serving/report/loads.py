"""The table of loads: every load point of every run, with throughput and latencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from llmexp.record.digits import rounded
from llmexp.record.predicted import PredictedLoad
from llmexp.record.result import ResultPoint
from llmexp.report.columns import Column, ReportTable
from llmexp.report.row import Row
from llmexp.serving.analysis.load_judgment import LOAD, OBJECTIVE
from llmexp.serving.plan.serving_plan import ServingPlan, load_name
from llmexp.serving.verdicts import saturation_of, search_end

PAIR = "p50\u00a0/\u00a0p99"
# Each with its place in the order in which columns go where there is no room.
LATENCIES = {
    "ttft": ("TTFT", 0),
    "tpot": ("TPOT", 3),
    "inter_token": ("ITL", 1),
    "end_to_end": ("end\u00a0to\u00a0end", 0),
}
TURNS = "TTFT\u00a0p50,\u00a0ms 1st\u00a0turn\u00a0/\u00a0later"
PREDICTED = "x predicted tokens/s\u00a0/\u00a0TPOT"
PREDICTED_LEGEND = (
    f"{PREDICTED.replace(chr(160), ' ')}: measured over the plan's prediction; * outside of its 90 % interval"
)
# Of a run, in characters; longer ones have several lines.
WIDEST_LABEL = 24
LEGEND = (
    "TTFT: time to first token; TPOT: time per output token after the first; ITL: time between two tokens; TTFT and "
    "end to end count from when a request was due, not from when it was sent"
)


_ANSWERS = {"kept_up": "yes", "kept": "yes", "overloaded": "no", "missed": "no", "unknown": "?"}


@dataclass(frozen=True)
class Load:
    """A load point of a run."""

    row: Row
    name: str
    point: ResultPoint

    def mean(self, metric: str) -> float | None:
        """Return the mean of a metric over repeats; None where there is none."""
        found = self.point.metrics.get(metric)
        return found.mean if found else None

    @property
    def predicted(self) -> PredictedLoad | None:
        """What the plan predicted of it; None where it did not."""
        loads = self.row.plan.predicted.loads if self.row.plan.predicted else []
        return next((found for found in loads if found.load == self.name), None)


def loads_of(rows: Sequence[Row]) -> list[Load]:
    """Return the load points of all runs that have results."""
    found = []
    for row in rows:
        points = row.result.points if row.result else []
        found += [Load(row, load_name(point.params), point) for point in points]
    return found


def loads_table(rows: Sequence[Row], label: Callable[[Row], str]) -> ReportTable | None:
    """Return the table of all load points; None where there is none."""
    loads = loads_of(rows)
    if not loads:
        return None
    problems = list(dict.fromkeys(load.point.problem for load in loads if load.point.problem))
    legend = [
        LEGEND,
        *saturation_lines(rows, label),
        *([PREDICTED_LEGEND] if any(load.predicted for load in loads) else []),
        *_client(loads, label),
        *(f"not measured: {problem}" for problem in problems),
    ]
    return ReportTable("load points", list(_columns(loads, label)), legend, explained=[LEGEND])


def saturation_lines(rows: Sequence[Row], label: Callable[[Row], str]) -> Iterator[str]:
    """Yield between which rates each run's server saturates, and why a load could not be judged."""
    for row in rows:
        points = row.result.points if row.result else []
        found = saturation_of(points)
        if found and not all("probe" in point.params for point in points):
            within = " within serve.slo" if any(OBJECTIVE in point.verdicts for point in points) else ""
            yield f"saturation of {label(row)}{within}: {found}"
        yield from _searches(row, label(row))
    for load in loads_of(rows):
        for verdict in load.point.verdicts.values():
            if verdict.answer == "unknown":
                yield f"?, {label(load.row)} at {load.name}: {'; '.join(verdict.reasons)}"


def _client(loads: Sequence[Load], label: Callable[[Row], str]) -> Iterator[str]:
    """Yield the largest share of a median latency that is the client's own."""
    shares = []
    for load in loads:
        for kind, words in (("ttft", "TTFT"), ("end_to_end", "end to end")):
            own_s, found_s = load.mean(f"client_floor_{kind}_p50_s"), load.mean(f"{kind}_p50_s")
            if own_s is not None and found_s:
                shares.append((own_s / found_s, own_s, found_s, f"{words} of {label(load.row)} at {load.name}"))
    if shares:
        share, own_s, found_s, where = max(shares)
        yield (
            f"of median latencies at most {share:.1%} are the client's own, measured on a server that answers at once: "
            f"{rounded(1e3 * own_s)} of {rounded(1e3 * found_s)} ms {where}"
        )


def _searches(row: Row, name: str) -> Iterator[str]:
    """Yield where the search of each repeat ended, and why."""
    assert isinstance(row.plan, ServingPlan)
    wanted = row.plan.config.serve.search
    by_repeat: dict[int, list[ResultPoint]] = {}
    for point in row.result.points if row.result else ():
        if "probe" in point.params:
            by_repeat.setdefault(point.params.get("repeat", 1), []).append(point)
    for repeat, probes in by_repeat.items():
        if wanted:
            which = f", repeat {repeat}" if len(by_repeat) > 1 else ""
            within = " within serve.slo" if any(OBJECTIVE in point.verdicts for point in probes) else ""
            yield f"saturation of {name}{which}{within}, by search: {search_end(probes, wanted)}"


def _columns(loads: Sequence[Load], label: Callable[[Row], str]) -> Iterator[Column]:
    """Yield the columns; where there is no room, the gaps between tokens go first, and goodput stays longest."""
    if len({load.row.id for load in loads}) > 1:
        yield Column("run", tuple(label(load.row) for load in loads), left=True, widest=WIDEST_LABEL)
    yield Column("load", tuple(load.name.replace(" ", "\u00a0") for load in loads), left=True)
    yield _column("requests/s", loads, lambda load: _rate(load.mean("requests_per_s")) or "-", 4)
    yield _column("output tokens/s", loads, lambda load: _rate(load.mean("output_tokens_per_s")))
    for kind, (words, dispensable) in LATENCIES.items():
        cells = tuple(_pair(load, kind) for load in loads)
        yield Column(f"{words},\u00a0ms {PAIR}", cells, dispensable=dispensable)
    if any(load.mean("later_turns_ttft_p50_s") is not None for load in loads):
        cells = tuple(_turns(load) for load in loads)
        yield Column(TURNS, cells, dispensable=2)
    if any(load.predicted for load in loads):
        yield _column(PREDICTED, loads, _over_predicted, 2)
    if any(load.point.verdicts for load in loads):
        yield _column("sustained", loads, lambda load: _answer(load, LOAD))
    if any(OBJECTIVE in load.point.verdicts for load in loads):
        yield _column("kept serve.slo", loads, lambda load: _answer(load, OBJECTIVE))
    if any(load.mean("goodput_per_s") is not None for load in loads):
        yield _column("goodput, requests/s", loads, lambda load: _rate(load.mean("goodput_per_s")), 5)
    if any(load.mean("failed_requests") for load in loads):
        yield _column("failed", loads, lambda load: _count(load.mean("failed_requests")))


def _column(header: str, loads: Sequence[Load], cell: Callable[[Load], str], dispensable: int = 0) -> Column:
    return Column(header, tuple(cell(load) for load in loads), dispensable=dispensable)


def _over_predicted(load: Load) -> str:
    """Return measured over predicted output tokens/s and TPOT; empty where either is missing."""
    tokens, tpot, of = load.mean("output_tokens_per_s"), load.mean("tpot_p50_s"), load.predicted
    if of is None or tokens is None or tpot is None:
        return ""
    shares = ((tokens, of.rate, of.low, of.high), (tpot, of.tpot_s, of.tpot_low_s, of.tpot_high_s))
    return "\u00a0/\u00a0".join(
        f"{found / mean:.2f}" + "\u00a0*" * (not low <= found <= high) for found, mean, low, high in shares
    )


def _rate(per_s: float | None) -> str:
    return "" if per_s is None else rounded(per_s)


def _count(mean: float | None) -> str:
    """Return a count, which may be a fraction as the mean over repeats."""
    if mean is None:
        return ""
    return f"{mean:,.0f}" if mean.is_integer() else rounded(mean)


def _answer(load: Load, question: str) -> str:
    judged = load.point.verdicts.get(question)
    return _ANSWERS[judged.answer] if judged else ""


def _pair(load: Load, kind: str) -> str:
    return _milliseconds(load.mean(f"{kind}_p50_s"), load.mean(f"{kind}_p99_s"))


def _turns(load: Load) -> str:
    return _milliseconds(load.mean("first_turn_ttft_p50_s"), load.mean("later_turns_ttft_p50_s"))


def _milliseconds(*seconds: float | None) -> str:
    return "\u00a0/\u00a0".join(rounded(each * 1e3) for each in seconds if each is not None)
