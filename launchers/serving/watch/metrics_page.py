"""Reads what a server says of itself: its page of metrics in Prometheus's text format.

Of a page only the lines that count are read, by one expression: the parser of Prometheus's own client would take forty
times as long for a page of vLLM, and make objects of its hundreds of histogram buckets.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from math import isfinite
from statistics import fmean

from llmexp.launch.server_answer import deadline
from llmexp.launchers.serving.client.address import Address
from llmexp.serving.plan.server_plan import MetricNames
from llmexp.serving.record.server_samples import SHARES, ServerMetric

LARGEST_BYTES = 2**24
_PIECE_BYTES = 2**16
# Labels, in which a quoted value may hold any character; the value; and a time that nobody needs. A line without its
# end was cut off.
_LINE = r'^({names})(?:\{{((?:[^"}}\n]|"(?:[^"\\\n]|\\.)*")*)\}})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*\r?\n'
# SGLang gives a gauge for all requests, and the same for each of their priorities.
_PART = re.compile(r'(?:^|,)priority="[^"]')


class PageError(Exception):
    """The page could not be read this time; the message says why."""


class MetricsPage:
    """A server's page, over a connection that is kept; `names` are those of the engine."""

    def __init__(self, address: Address, path: str, names: MetricNames, headers: Mapping[str, str] | None = None):
        kind = HTTPSConnection if address.is_tls else HTTPConnection
        self._connection = kind(address.host, address.port)
        self._path, self._headers = address.below + path, dict(headers or {})
        self._names, self._line = names, _pattern(names)

    def read(self, within_s: float) -> dict[ServerMetric, float]:
        """Ask for the page; raises PageError where it does not come wholly, in time, or says nothing of the server."""
        return self._values(self.text(within_s))

    def text(self, within_s: float) -> str:
        """Return the page as it is; raises PageError where it does not come wholly or in time."""
        try:
            return self._text(time.monotonic() + within_s)
        except TimeoutError:
            raise self._given_up(f"no whole page within {within_s:g} s") from None
        except (OSError, HTTPException) as error:
            raise self._given_up(f"{type(error).__name__}: {error}") from None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _text(self, until_s: float) -> str:
        connection = self._connection
        connection.timeout = _left_s(until_s)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        with deadline(connection, connection.timeout):
            connection.request("GET", self._path, headers=self._headers)
            answer = connection.getresponse()
        text = b"".join(self._pieces(answer, until_s)).decode(errors="replace")
        answer.close()
        if answer.status != 200:
            raise HTTPException(f"status {answer.status}")
        return text

    def _pieces(self, answer: HTTPResponse, until_s: float) -> Iterator[bytes]:
        size = 0
        while piece := answer.read1(_PIECE_BYTES):
            yield piece
            size += len(piece)
            if size > LARGEST_BYTES:
                raise HTTPException(f"more than {LARGEST_BYTES} bytes")
            left_s = _left_s(until_s)
            if self._connection.sock is not None:
                self._connection.sock.settimeout(left_s)
        if answer.length:
            raise HTTPException(f"{answer.length} bytes are missing")

    def _given_up(self, why: str) -> PageError:
        """Close the connection, on which the rest of an answer may still come."""
        self._connection.close()
        return PageError(why)

    def _values(self, text: str) -> dict[ServerMetric, float]:
        series: dict[str, list[float]] = {}
        for name, labels, value in self._line.findall(text):
            number = _number(value)
            if number is not None and not _PART.search(labels):
                series.setdefault(name, []).append(number)
        summed = {
            metric: (fmean if metric in SHARES else sum)(series[found])
            for metric, names in self._names.items()
            if (found := next((name for name in names if name in series), None))
        }
        # The sum of large numbers may be none.
        told = {metric: value for metric, value in summed.items() if isfinite(value)}
        if not told:
            raise PageError("the page has none of the engine's metrics")
        return told


def _pattern(names: MetricNames) -> re.Pattern[str]:
    every = sorted({name for of in names.values() for name in of})
    return re.compile(_LINE.format(names="|".join(map(re.escape, every))), re.MULTILINE)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
