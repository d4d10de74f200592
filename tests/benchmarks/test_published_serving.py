"""The file of published serving measurements: every row can be read, is from a named place, and is possible."""

from __future__ import annotations

import csv
from collections import Counter

import pytest

from benchmarks.prediction.served import PUBLISHED, Measured, architecture, hardware, measured

ROWS = measured()
METRICS = {"throughput", "decode", "tpot", "ttft", "latency"}
UNITS = {
    "output tokens/s",
    "output tokens/s/GPU",
    "input and output tokens/s",
    "requests/s",
    "ms",
    "s",
}


def test_there_are_many_rows_of_many_sources() -> None:
    """A row too many of one source tells less than one of another."""
    assert len(ROWS) >= 700
    assert len(Counter(row.source for row in ROWS)) >= 35


def test_rows_are_printed_once() -> None:
    """No row is there twice."""
    lines = PUBLISHED.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize("source", sorted({row.source for row in ROWS}))
def test_every_row_says_where_it_is_from(source: str) -> None:
    """A reader can look every number up; those of GitHub's files name a commit."""
    for row in csv.DictReader(PUBLISHED.read_text(encoding="utf-8").splitlines()):
        if row["source"] == source:
            assert row["url"].startswith("https://"), row
            assert row["metric"] in METRICS, row
            assert row["unit"] in UNITS, row
            assert "/blob/" not in row["url"] or (len(row["commit"]) == 40 and row["commit"] in row["url"]), row


@pytest.mark.parametrize("model", sorted({row.row["model"] for row in ROWS}))
def test_models_have_the_parameters_that_their_names_say(model: str) -> None:
    """Sizes that were copied wrong would give another number of parameters."""
    said = {"mixtral-8x7b": 46.7e9, "deepseek-r1": 671e9, "llama2-7b": 6.74e9, "mistral-7b": 7.24e9, "qwen2-7b": 7.6e9}
    billions = model.rpartition("-")[2].removesuffix("b")
    expected = said.get(model) or float(billions) * 1e9
    assert architecture(model).parameters == pytest.approx(expected, rel=0.09)


def test_few_numbers_are_beyond_the_data_sheet() -> None:
    """A number that the peaks forbid is left out by this rule, and nothing else is."""
    beyond = [row for row in ROWS if row.is_impossible]
    assert len(beyond) <= 5


@pytest.mark.parametrize(
    ("source", "hardware_name", "metric"),
    [("databasemart", "rtx4090", "throughput"), ("accelmark", "rtx4090", "ttft"), ("dstack", "mi300x", "throughput")],
)
def test_what_is_not_on_a_data_sheet_makes_no_number_impossible(source: str, hardware_name: str, metric: str) -> None:
    """Memory besides the weights, links through a host, and how lengths vary are estimates, which servers beat."""
    found = [row for row in ROWS if (row.source, row.row["hardware"], row.metric) == (source, hardware_name, metric)]
    assert found
    assert not [row for row in found if row.is_impossible]


def test_a_number_beyond_the_data_sheet_is_seen() -> None:
    """One sequence of a model in 13.5 GB cannot get 400 tokens a second from 2 TB/s."""
    (row,) = (row for row in ROWS if row.source == "gpt-fast" and row.value == 104.9)
    assert not row.is_impossible
    assert Measured(row.row, row.held, row.load, 400.0).is_impossible


def test_hardware_that_changes_another_has_its_keys() -> None:
    """The RTX 3090 without NVLink is a file over that with it."""
    assert hardware("rtx3090").memory_bandwidth_bytes_per_s == hardware("rtx3090_nvlink").memory_bandwidth_bytes_per_s
