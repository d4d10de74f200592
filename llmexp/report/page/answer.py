"""The answer of a table in sentences: what is fastest, beside what, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Literal

from llmexp.analysis.inference import Estimate, log_ratio
from llmexp.analysis.paired import ERROR, PairedEstimate, is_contended, paired
from llmexp.analysis.stability import RELEVANT
from llmexp.record.digits import rounded, three_digits
from llmexp.record.result import Metric
from llmexp.report.rounds import Rounds, rounds_of
from llmexp.report.row import OOM, Row
from llmexp.report.text_list import listed

# The probability that nothing in a table is called slower that is not, when all its runs are equally fast.
CONFIDENCE = 0.95
# Each comparison takes milliseconds, and nobody reads the names of more.
MOST_COMPARED = 60
Label = Callable[[Row], str]
Verdict = Literal["slower", "same", "unknown", "single", "disturbed"]


@dataclass(frozen=True)
class BesideRow:
    """Another run beside the one with the highest mean: the verdict, and the estimate of the best over it."""

    row: Row
    verdict: Verdict
    estimate: Estimate | None

    @property
    def is_compared(self) -> bool:
        """Tell whether the two speeds say anything of each other; where they do not, no ratio is stated."""
        return self.verdict != "disturbed"


def answers(rows: Sequence[Row], label: Label, odd: Mapping[Path, str] | None = None) -> list[str]:
    """Return the sentences of each group of rows that compete: of one task, model, data, hardware and ranks.

    `odd` says which runs did another training than they were asked for; they are named, and not compared.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if not row.is_control:
            groups.setdefault(_competing(row), []).append(row)
    found = [_Group(tuple(group), label, odd or {}) for group in groups.values()]
    return list(dict.fromkeys(line for group in found for line in group.sentences(len(groups) > 1)))


def leaders(rows: Sequence[Row], label: Label, odd: Mapping[Path, str] | None = None) -> list[str]:
    """Return the first sentence on each group with several measured runs: which is fastest, and if that is sure."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row.rate and not row.is_control:
            groups.setdefault(_competing(row), []).append(row)
    found = [_Group(tuple(group), label, odd or {}) for group in groups.values() if len(group) > 1]
    return [group.sentences(len(groups) > 1)[0] for group in found]


def _competing(row: Row) -> tuple[str, ...]:
    work = row.comparison_key
    return tuple(work.get(name, "") for name in ("task", "model", "data", "seq_len", "hardware", "ranks", "devices"))


@dataclass(frozen=True)
class _Group:
    """Rows that compete, how they are named, and those of them that did another training, with the reason."""

    rows: tuple[Row, ...]
    label: Label
    odd: Mapping[Path, str]

    def sentences(self, several: bool) -> list[str]:
        """Say which is fastest, and what is known of the others; where there are several groups, also on what."""
        first = self.rows[0]
        where = f" on {first.hardware}, {first.processes} rank{'s' * (first.processes > 1)}" if several else ""
        rows = [row for row in self.rows if row.folder.path not in self.odd]
        measured = sorted((row for row in rows if row.rate), key=lambda row: -_mean(row))
        left_out = [*self._other_trainings(where), *_ended(rows, self.label)]
        if not measured:
            alone = bool(rows and first.plan.rate) and len(rows) == len(self.rows)
            nobody = [f"None of {len(rows)} runs{where} was measured to its end."] * alone
            return [*nobody, *left_out]
        best, others, left = measured[0], beside_best(measured), len(measured) - 1 - MOST_COMPARED
        verb, what = (
            ("trains", first.comparison_key.get("model", "")) if "method" in best.plan.name_fields else ("reaches", "")
        )
        head = f"{self.label(best)} {verb} {what}".rstrip() + f"{' at' * (verb == 'trains')} {speed(best)}{where}"
        return [
            _head(head, best, others, rows, self.label),
            *_others(others, self.label),
            *([f"Lower still and not compared one by one: {left} more."] if left > 0 else []),
            *_sureness(self.label(best), best, others),
            *left_out,
        ]

    def _other_trainings(self, where: str) -> list[str]:
        """Name the runs that are not compared, by what shows that they did another training."""
        reasons: dict[str, list[str]] = {}
        for row in self.rows:
            if why := self.odd.get(row.folder.path):
                reasons.setdefault(why, []).append(self.label(row))
        return [
            f"Not compared{where}, because runs that were asked for the same training did not do it ({why}): "
            f"{listed(names)}."
            for why, names in reasons.items()
        ]


def beside_best(measured: Sequence[Row], rounds: Rounds = rounds_of) -> list[BesideRow]:
    """Compare the first row, which has the highest mean, with each other.

    All pairs of the table share the allowed error (Bonferroni), because the first was picked by looking at all. Of
    many, only the next MOST_COMPARED are compared. Runs on a host that others shared are compared by their rounds.
    """
    pairs = max(1, comb(len(measured), 2))
    return [_beside(measured[0], other, pairs, rounds) for other in measured[1 : MOST_COMPARED + 1]]


def _beside(best: Row, other: Row, pairs: int, rounds: Rounds) -> BesideRow:
    assert best.rate
    assert other.rate
    judged = (best.stability, other.stability)
    if any(one and one.verdict == "unstable" for one in judged):
        by_rounds = paired(rounds(other), rounds(best)) if all(map(is_contended, judged)) else None
        return _judged(other, by_rounds, 1 - ERROR / pairs) if by_rounds else BesideRow(other, "disturbed", None)
    found = log_ratio(other.rate, best.rate)
    return _judged(other, found, 1 - (1 - CONFIDENCE) / pairs) if found else BesideRow(other, "single", None)


def _judged(other: Row, found: Estimate, confidence: float) -> BesideRow:
    if found.value > 0 and found.differs(confidence):
        return BesideRow(other, "slower", found)
    return BesideRow(other, "same" if found.is_within(RELEVANT, confidence) else "unknown", found)


def _head(said: str, best: Row, others: Sequence[BesideRow], rows: Sequence[Row], label: Label) -> str:
    """Say how fast the first is, and how much faster than the slowest or than Naive, and whether that is sure."""
    measured = sum(row.rate is not None for row in rows)
    if not others:
        return f"{said}. It is the only one that was measured, so nothing says whether another is faster."
    naive = next(
        (one for one in others if one.row.name == "Naive" and one.row.comparison_key == best.comparison_key), others[-1]
    )
    times = f", {_times(best, naive)} {label(naive.row)}" * naive.is_compared
    if len(others) == measured - 1 and all(one.verdict == "slower" for one in others):
        did_not_fit = any(row.state == OOM for row in rows)
        which = "that fits" if did_not_fit else f"of the {measured} that were measured to their end"
        return f"{said}{times}: it is the fastest {which} ({CONFIDENCE:.0%} confidence)."
    return f"{said}{times}: highest mean of {measured}; the lead is not statistically certain."


def _times(best: Row, beside: BesideRow) -> str:
    """Say by the means how many times as fast the best is; on a shared host by the rounds, which is another ratio."""
    found = beside.estimate
    if isinstance(found, PairedEstimate):
        return f"round by round {three_digits(found.ratio, '.2f')} times"
    return f"{three_digits(_mean(best) / _mean(beside.row), '.2f')} times"


def _others(others: Sequence[BesideRow], label: Label) -> list[str]:
    found: dict[Verdict, list[str]] = {}
    for one in others:
        found.setdefault(one.verdict, []).append(label(one.row))
    words: dict[Verdict, str] = {
        "slower": "Significantly slower: {}.",
        "same": f"Equally fast within {RELEVANT:.0%}: {{}}.",
        "unknown": "No significant difference from it: {}.",
        "single": "Lower in the one process that was measured of each, which does not say how another would do: {}.",
        "disturbed": "Lower, but not judged, because their measurement or that of the first is unstable: {}.",
    }
    return [sentence.format(listed(found[verdict])) for verdict, sentence in words.items() if verdict in found]


def _sureness(name: str, best: Row, others: Sequence[BesideRow]) -> list[str]:
    verdict = best.doubt.partition(":")[0]
    lines = [f"The figure of {name} is marked {verdict}; its note says why."] if verdict else []
    if any(one.verdict == "single" for one in others):
        lines.append("measure.repeats=3 tells more.")
    by_rounds = [one for one in others if isinstance(one.estimate, PairedEstimate)]
    if by_rounds:
        lines.append(
            "Others shared the host; where they met both runs alike, repeats of the same round are compared, each by "
            "the share of the cores that was left to it."
        )
    if any(one.verdict in ("slower", "same") for one in others):
        lines.append(f"Intervals are by the repeats, and hold for all pairs at once with {CONFIDENCE:.0%} confidence.")
    return lines


def _ended(rows: Sequence[Row], label: Label) -> list[str]:
    """Name the runs without a rate by how they ended or stand."""
    states: dict[str, list[str]] = {}
    for row in rows:
        if row.plan.rate and not row.rate:
            states.setdefault("Out of memory" if row.state == OOM else row.state.capitalize(), []).append(label(row))
    return [f"{state}: {listed(names)}." for state, names in states.items()]


def speed(row: Row) -> str:
    """Return the mean rate with its unit, for one device where there are several."""
    rate: Metric | None = row.rate
    assert rate
    devices, unit = max(row.plan.devices, 1), row.plan.rate_unit
    if devices == 1 or row.plan.rate != "tokens_per_s":
        return f"{rounded(rate.mean)} {unit}"
    one = "GPU" if row.plan.config.hardware.device != "cpu" else "rank"
    return f"{rounded(rate.mean / devices)} {unit} a {one}"


def _mean(row: Row) -> float:
    return row.rate.mean if row.rate else 0.0
