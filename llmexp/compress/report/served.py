"""What was served of the compressed models and of their originals: quality, bytes, tokens/s and cost in one table.

A server belongs to the run whose model it serves by model=@NAME.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmexp.record.result import Metric, ResultPoint
from llmexp.report.columns import Column, ReportTable
from llmexp.report.row import Row
from llmexp.report.signs import doubt_sign

MB, MILLION = 1e6, 1e6
FRONT = "*"
RATE, USD = "output_tokens_per_s", "usd_per_million_output_tokens"
ORIGINAL = "original"


@dataclass(frozen=True)
class ServedQuality:
    """A model's bytes and perplexity, and the fastest load of one server of it; `made` is None for the original."""

    name: str
    made: Row | None
    server: Row
    file_bytes: float
    perplexity: float
    ratio: float
    tokens_per_s: float
    usd: float | None

    @property
    def device_hours(self) -> float:
        """The device-hours in which the server gives a million output tokens."""
        devices = self.server.result.devices if self.server.result else 1
        return devices * MILLION / self.tokens_per_s / 3600

    def is_beaten_by(self, other: ServedQuality) -> bool:
        """Tell whether another one is as good in bytes, perplexity and tokens/s, and better in one of them."""
        own = (self.file_bytes, self.perplexity, -self.tokens_per_s)
        others = (other.file_bytes, other.perplexity, -other.tokens_per_s)
        return own != others and all(theirs <= ours for ours, theirs in zip(own, others, strict=True))


def served_qualities(rows: Sequence[Row], others: Sequence[Row]) -> list[ServedQuality]:
    """Return each server that was measured of an original, then of each compressed model, in the order of these."""
    measured = [row for row in rows if row.metric("perplexity")]
    servers: dict[str, list[Row]] = {}
    for row in others:
        if (run := _maker(row)) and row.metric(RATE):
            servers.setdefault(run, []).append(row)
    originals = {run: row for row in reversed(measured) if (run := _maker(row))}
    found = [_served(None, row, server) for run, row in originals.items() for server in servers.get(run, ())]
    return found + [_served(row, row, server) for row in measured for server in servers.get(row.id, ())]


def front_of(models: Sequence[ServedQuality]) -> list[ServedQuality]:
    """Return the models that no other with the same original and documents, on the same kind of server, beats."""
    return [one for one in models if not any(one.is_beaten_by(other) for other in models if _comparable(one, other))]


def served_table(rows: Sequence[Row], others: Sequence[Row]) -> ReportTable | None:
    """Return quality, bytes, tokens/s and cost side by side; None where nothing of these runs was served."""
    models = served_qualities(rows, others)
    if not models:
        return None
    best, several = front_of(models), len({one.server.name for one in models}) > 1
    shown = {
        "model": [one.name for one in models],
        "server": [one.server.name if several else "" for one in models],
        "perplexity": [f"{one.perplexity:,.4g}{f' {FRONT}' if one in best else ''}" for one in models],
        "ratio": [f"{one.ratio:.4f}" for one in models],
        "file, MB": [f"{one.file_bytes / MB:,.3g}" for one in models],
        "output tokens/s": [f"{one.tokens_per_s:,.0f}{_sign(one.server)}" for one in models],
        "device-hours a million": [f"{one.device_hours:.3g}" for one in models],
        "USD a million": ["" if one.usd is None else f"{one.usd:.3g}" for one in models],
    }
    columns = [
        Column(name, tuple(cells), left=name in ("model", "server")) for name, cells in shown.items() if any(cells)
    ]
    return ReportTable("Quality, bytes, tokens/s and cost of what was served", columns, list(_legend(models)))


def _legend(models: Sequence[ServedQuality]) -> Iterator[str]:
    yield f"{FRONT}: none here beats it in perplexity, bytes and output tokens/s together (the Pareto front)"
    yield "output tokens/s: of the server's fastest load; a million: output tokens, at this speed"
    if any(_repeats(one.server) < 2 for one in models):
        yield "one repeat: how far output tokens/s scatter is not known, and so is who is on the front by them alone"
    for sign in sorted({doubt_sign(one.server) for one in models if one.server.doubt}):
        yield f"{sign}: not to be relied on; the note of the served run says why"


def _comparable(one: ServedQuality, other: ServedQuality) -> bool:
    """Tell whether two models have the same documents, and their servers the same work, whatever they serve."""
    return _work(one) == _work(other)


def _work(model: ServedQuality) -> dict[str, str]:
    return {name: value for name, value in model.server.comparison_key.items() if name != "model"}


def _served(made: Row | None, row: Row, server: Row) -> ServedQuality:
    own = made is not None
    found = (row.metric("file_bytes" if own else "original_file_bytes"), row.metric("perplexity"))
    size, after, before = (_mean(metric) for metric in (*found, row.metric("original_perplexity")))
    point = _fastest(server)
    return ServedQuality(
        name=row.name if own else ORIGINAL,
        made=made,
        server=server,
        file_bytes=size,
        perplexity=after if own else before,
        ratio=after / before if own else 1.0,
        tokens_per_s=_mean(server.metric(RATE)),
        usd=usd.mean if point and (usd := point.metrics.get(USD)) else None,
    )


def _fastest(server: Row) -> ResultPoint | None:
    """Return the load point with the most output tokens/s, which the server's rate is."""
    points = server.result.points if server.result else []
    rated = [(metric.mean, point) for point in points if (metric := point.metrics.get(RATE))]
    return max(rated, key=lambda each: each[0])[1] if rated else None


def _maker(row: Row) -> str:
    """Return the id of the run whose model a run starts from."""
    model = row.plan.config.starts_from
    return model.made.run if model and model.made else ""


def _mean(metric: Metric | None) -> float:
    assert metric is not None, "a run that was measured has every metric of its task"
    return metric.mean


def _repeats(row: Row) -> int:
    return row.result.repeats if row.result else 0


def _sign(row: Row) -> str:
    return f" {doubt_sign(row)}" if row.doubt else ""
