"""The page: it loads nothing, escapes what runs say, and tells what the rows tell."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from html.parser import HTMLParser

import pytest

from llmexp.record.result import Metric, Stability
from llmexp.report.page import document
from llmexp.report.page.document import page
from llmexp.report.page.section_charts import section_charts
from llmexp.report.page.tables import environment_table
from llmexp.report.table import Report, build_report

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)></script>"
LOADING = {"src", "href", "srcset", "action", "data", "poster", "background", "formaction"}


class Seen(HTMLParser):
    """The tags of a page with their attributes, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        self._in_script = tag == "script"

    def handle_endtag(self, tag):
        self._in_script = False

    def handle_data(self, data):
        if self._in_script:
            self.scripts[-1] += data

    @property
    def data(self):
        """The tables, which the page's script draws."""
        return json.loads(self.scripts[0])


@pytest.fixture
def three(make_run) -> Report:
    rates = {"Naive": 1000.0, "F": 2000.0, "F+R": 1500.0}
    metrics = {
        method: {"tokens_per_s": Metric(mean=rate, std_between_repeats=5.0, n=3), "training_state_bytes": 1e6 * rate}
        for method, rate in rates.items()
    }
    runs = [make_run(method, metrics=metrics[method]) for method in rates]
    return build_report([*runs, make_run("Z2", status="oom")])


def test_the_page_loads_nothing_and_only_its_own_scripts_may_run(three):
    text = page(three)
    seen = Seen(text)
    places = [value or "" for _, attrs in seen.tags for name, value in attrs.items() if name in LOADING]
    assert places
    assert all(place.startswith(("#", "data:")) for place in places)
    assert not [tag for tag, _ in seen.tags if tag in ("link", "iframe", "object", "embed", "base")]
    assert not re.search(r"@import|url\(\s*['\"]?(?!data:)[a-z/]", re.search(r"<style>(.*?)</style>", text, re.S)[1])
    policy = next(attrs["content"] for _, attrs in seen.tags if "http-equiv" in attrs)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in seen.scripts[1:]]
    assert len(digests) == 1
    assert policy.endswith("script-src " + " ".join(f"'sha256-{digest}'" for digest in digests))
    assert "default-src 'none'" in policy


def test_what_runs_say_is_escaped_in_text_and_in_the_data_of_the_script(make_run):
    name = EVIL.replace("/", "")
    metrics = {"tokens_per_s": 1.0, "training_state_bytes": 1e6}
    runs = [
        make_run("F", metrics=metrics, model__name=name),
        make_run("F", metrics=metrics),
        make_run("R", status="failed", reason=EVIL),
    ]
    text = page(build_report(runs), title=EVIL)
    seen = Seen(text)
    assert "<script>alert" not in text
    assert not [attrs for _, attrs in seen.tags if "onerror" in attrs]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert [tag for tag, _ in seen.tags].count("script") == 2
    assert escape(name) in re.search(r'<div class="bars".*?</figure>', text, re.S)[0]
    assert any(name in row for table in seen.data for row in table["rows"])


def test_a_secret_of_a_reason_is_hidden(make_run):
    secret = "hf_" + "aB3" * 12
    text = page(build_report([make_run("F", status="failed", reason=f"the hub refused {secret}")]))
    assert "the hub refused" in text
    assert secret not in text


def test_its_tables_hold_the_cells_of_every_row(three):
    tables = {table["title"]: table for table in Seen(page(three)).data}
    section = three.sections[0]
    shown = tables["All runs"]
    columns = [column for column in section.columns if column.header != "model"]  # the title names it
    assert shown["headers"] == [column.header for column in columns]
    assert [tuple(row) for row in shown["rows"]] == list(zip(*(column.cells for column in columns), strict=True))
    assert [row[1] for row in tables["The command of each run"]["rows"]] == [row.command for row in three.rows]
    assert tables["How sure each number is"]["rows"][1][:2] == ["F", "3"]


def test_the_pareto_chart_holds_the_measured_runs_with_their_intervals(three):
    chart = next(chart for chart in section_charts(three.sections[0]) if chart.name == "throughput_and_memory")
    every, front = chart.traces
    ranks = three.rows[0].processes
    assert every.y == [rate / ranks for rate in (1000.0, 2000.0, 1500.0)]
    assert every.labels == ["Naive", "F", "F+R"]
    half = 4.303 * 5.0 / 3**0.5 / ranks
    assert every.intervals[0] == pytest.approx((1000 / ranks - half, 1000 / ranks + half), rel=1e-4)
    assert front.y == [rate / ranks for rate in (1000.0, 1500.0, 2000.0)]


def test_doubts_stand_in_words(make_run):
    doubt = Stability(verdict="unstable", reasons=["noise: 12 % between steps"], low=900.0, high=1100.0, source="steps")
    report = build_report([make_run("F", metrics={"tokens_per_s": 1000.0}, stability=doubt)])
    text = page(report)
    table = next(t for t in Seen(text).data if t["title"] == "How sure each number is")
    assert table["rows"] == [["F", "1", "900 to 1,100", "steps", "unstable"]]
    assert text.count("noise: 12 % between steps") == 1
    assert "The figure of F is marked unstable; its note says why." in text


def test_without_charts_the_page_is_small_and_no_runs_are_a_page_too(make_run):
    assert len(page(build_report([make_run("F", status="oom")]))) < 30_000
    assert "No runs." in page(build_report([]))


def test_a_value_of_the_environment_names_its_runs_in_their_order_whatever_else_differs(make_run):
    folders, values = [], (("2.1", "3.11"), ("2.2", "3.12"), ("2.1", "3.12"), ("2.1", "3.11"))
    for number, (torch, python) in enumerate(values):
        folder = make_run("F", seed=number)
        environment = {"torch": torch, "python": python, "load_average": number, "distributions": {"a": "1"}}
        folder.write(folder.result_path, folder.result().model_copy(update={"environment": environment}))
        folders.append(folder)
    section = build_report(folders).sections[0]
    names = [section.named(row) for row in section.rows]
    assert environment_table(section).rows == [
        ("torch", "2.1", ", ".join((names[0], names[2], names[3]))),
        ("torch", "2.2", names[1]),
        ("python", "3.11", ", ".join((names[0], names[3]))),
        ("python", "3.12", ", ".join((names[1], names[2]))),
    ]


def test_environments_that_differ_are_named(make_run):
    folders = [make_run("F", metrics={"tokens_per_s": 1.0}), make_run("R", metrics={"tokens_per_s": 1.0})]
    for folder, version in zip(folders, ("2.1", "2.2"), strict=True):
        environment = {"torch": version, "python": "3.11", "distributions": {"a": "1"}}
        folder.write(folder.result_path, folder.result().model_copy(update={"environment": environment}))
    tables = Seen(page(build_report(folders))).data
    found = next(table for table in tables if table["title"].startswith("What differs"))
    assert found["rows"] == [["torch", "2.1", "F"], ["torch", "2.2", "R"]]


def test_without_jinja2_it_is_said(monkeypatch):
    monkeypatch.setattr(document, "can_make_pages", lambda: False)
    with pytest.raises(document.RecordError, match="it needs jinja2"):
        page(build_report([]))


def drawn(text: str) -> list[str]:
    """The charts of a page in their order."""
    return re.findall(r"<figure>.*?</figure>", text, re.S)


def test_twenty_runs_with_long_losses_weigh_little(make_run, write_samples):
    runs = []
    for number in range(20):
        rate = Metric(mean=1000.0 + number, std_between_repeats=5.0, n=3)
        folder = make_run("F", metrics={"tokens_per_s": rate, "training_state_bytes": 1e6 + number}, seed=number)
        write_samples(folder.repeat(0), 0, [(1.0, 5.0 + (number + step) % 7 / 10) for step in range(2000)])
        runs.append(folder)
    text = page(build_report(runs))
    assert len(drawn(text)) >= 4
    assert len(text.encode()) < 200_000


def test_the_first_screen_is_question_answer_picture_and_one_table(three):
    text = page(three)
    order = ["python -m llmexp", "4 runs: 3 success, 1 out of memory", ">Answer<", '<div class="bars"', ">All runs<"]
    places = [text.index(part) for part in (*order, ">Further pictures<", "<details class=")]
    assert places == sorted(places)
    before = text[: text.index(">Further pictures<")]
    assert before.count("data-table") == 1
    assert before.count("<figure>") == 1


def test_nothing_stands_twice(three):
    seen = Seen(page(three))
    titles = [table["title"] for table in seen.data]
    assert len(set(titles)) == len(titles)
    headings = re.findall(r"<h\d[^>]*>(.*?)</h\d>", page(three))
    assert len(set(headings)) == len(headings)
    notes = re.findall(r"<(?:li|p)>(.*?)</(?:li|p)>", page(three))
    assert len(set(notes)) == len(notes) - notes.count("This table needs the page's script.") + 1


def test_every_picture_has_its_content_in_words(three):
    seen = Seen(page(three))
    pictures = [attrs for _, attrs in seen.tags if attrs.get("role") == "img"]
    assert pictures[0]["aria-label"] == "tokens/s. measured: Naive 1,000, F 2,000, F+R 1,500, Z2 out of memory"
    assert all(attrs["aria-label"] for attrs in pictures)
    assert all(attrs.get("alt") for tag, attrs in seen.tags if tag == "img")


def test_paper_is_light_and_shows_what_is_folded(three):
    styles = re.search(r"<style>(.*?)</style>", page(three), re.S)[1]
    printed = styles[styles.index("@media print") :]
    assert "@media screen and (prefers-color-scheme: dark)" in styles
    assert "details::details-content { content-visibility: visible" in printed


def test_runs_of_one_memory_have_no_chart_of_it(make_run):
    metrics = {"tokens_per_s": 1000.0, "training_state_bytes": 1e6}
    section = build_report([make_run("Naive", metrics=metrics), make_run("F", metrics=metrics)]).sections[0]
    assert [chart.name for chart in section_charts(section)] == ["tokens_s", "training_state"]
