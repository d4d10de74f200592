"""MLflow's traces of a run: all spans in one call, with the times at which they happened, and the run's own link."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from llmexp.record.mlflow.experiment import Experiment
from llmexp.record.redact import redact
from llmexp.record.spans import TimeSpan

if TYPE_CHECKING:
    from mlflow.entities import Span

# Of one request to a server, by its API.
MOST_LINKED = 100
_TRACE_BYTES, _SPAN_BYTES = 16, 8
_TRACE_ID, _TYPE = "mlflow.traceRequestId", "mlflow.spanType"
_INPUTS, _OUTPUTS = "mlflow.spanInputs", "mlflow.spanOutputs"
_USAGE = "mlflow.chat.tokenUsage"


class Traces:
    """The traces of one experiment. Stores without them, such as a folder of files, get none."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment

    def write(self, run_id: str, spans: Sequence[TimeSpan]) -> None:
        """Write a trace for each span, and link it to the run; what is there already stays as it is."""
        if not spans:
            return
        from mlflow import entities

        ids = [hashlib.sha256(f"{run_id} {number}".encode()).digest()[:_TRACE_BYTES] for number in range(len(spans))]
        traces = [list(_rows(trace, span)) for trace, span in zip(ids, spans, strict=True)]
        _redact([row for rows in traces for row in rows])
        with suppress(NotImplementedError):
            self._log([[entities.Span.from_dict(row) for row in rows] for rows in traces])
            self._experiment.client.link_traces_to_run([f"tr-{trace.hex()}" for trace in ids[:MOST_LINKED]], run_id)

    def _log(self, traces: Sequence[Sequence[Span]]) -> None:
        """Write all traces at once, or one by one where an older MLflow, such as 3.7, takes no more of them."""
        from mlflow.exceptions import MlflowException
        from mlflow.tracing.client import TracingClient

        client = TracingClient(self._experiment.uri)
        try:
            client.log_spans(self._experiment.id, [span for spans in traces for span in spans])
        except MlflowException:
            if len(traces) == 1:
                raise
            for spans in traces:
                client.log_spans(self._experiment.id, list(spans))

    def remove(self, run_id: str) -> None:
        """Delete the traces of a run."""
        with suppress(NotImplementedError):
            found = self._experiment.client.search_traces(
                locations=[self._experiment.id], run_id=run_id, include_spans=False, max_results=MOST_LINKED
            )
            if ids := [trace.info.trace_id for trace in found]:
                self._experiment.client.delete_traces(self._experiment.id, trace_ids=ids)


def _rows(trace: bytes, span: TimeSpan, place: str = "0", above: bytes = b"") -> Iterator[dict[str, Any]]:
    """Yield a span and its parts in the form that MLflow stores."""
    own = hashlib.sha256(trace + place.encode()).digest()[:_SPAN_BYTES]
    yield {
        "trace_id": _base64(trace),
        "span_id": _base64(own),
        "parent_span_id": _base64(above) if above else None,
        "name": span.name,
        "start_time_unix_nano": round(1e9 * span.start_s),
        "end_time_unix_nano": round(1e9 * span.end_s),
        "status": {"code": f"STATUS_CODE_{'ERROR' if span.problem else 'OK'}", "message": span.problem},
        "attributes": _attributes(f"tr-{trace.hex()}", span, {} if above else {_INPUTS: span.name}),
    }
    for number, part in enumerate(span.parts):
        yield from _rows(trace, part, f"{place}.{number}", own)


def _attributes(trace_id: str, span: TimeSpan, shown: Mapping[str, str]) -> dict[str, str]:
    """Return what is known of a span, with tokens, texts and what is shown under the names of MLflow's columns."""
    known = dict(span.known)
    own: dict[str, Any] = {_TRACE_ID: trace_id, _TYPE: "UNKNOWN", **shown}
    if "text" in known:
        own[_OUTPUTS] = known.pop("text")
    if {"input_tokens", "output_tokens"} <= known.keys():
        tokens = {name: known[name] for name in ("input_tokens", "output_tokens")}
        own[_TYPE] = "LLM"
        own[_USAGE] = tokens | {"total_tokens": sum(tokens.values())}
    return {name: json.dumps(value) for name, value in (own | known).items()}


def _redact(rows: list[dict[str, Any]]) -> None:
    """Hide secrets in what is known of spans; all is searched at once first, because a search of each takes longer."""
    told = [(row["attributes"], row["status"]) for row in rows]
    together = "\n".join(text for attributes, status in told for text in (*attributes.values(), status["message"]))
    for attributes, status in told if redact(together) != together else ():
        attributes |= {name: redact(text) for name, text in attributes.items() if name != _TRACE_ID}
        status["message"] = redact(status["message"])


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
