"""What a training budget takes, by hand: 1e9 tokens at 1,000 tokens/s are 1e6 s on every device."""

from __future__ import annotations

import csv
import io

import pytest

from llmexp.errors import ConfigError
from llmexp.record.result import Metric
from llmexp.report.latex import latex
from llmexp.report.page.document import page
from llmexp.report.table import build_report
from llmexp.report.text import comma_separated, markdown
from llmexp.report.training_budget import read_training_budget

RATE = Metric(mean=1000.0, std_between_repeats=10.0, n=3)
# Student's t for 2 degrees of freedom is 4.303, so that the mean of 3 is known to 4.303 x 1 % / sqrt(3) = 2.484 %.
LOW_S, HIGH_S = 1e6 / 1.025155, 1e6 * 1.025155
PRICED = {"hardware__price_per_device_hour_usd": 2.0}


def budget(text: str, *folders):
    return build_report(folders).with_training_budget(read_training_budget(text))


def lines(report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(comma_separated(report))))


def test_time_and_money_have_the_interval_of_the_repeats(make_run):
    run = make_run(metrics={"tokens_per_s": RATE}, **PRICED)
    (line,) = lines(budget("tokens=1e9", run))
    devices = build_report([run]).rows[0].processes
    assert float(line["budget_time_s"]) == pytest.approx(1e6)
    assert float(line["budget_time_low_s"]) == pytest.approx(LOW_S, rel=1e-4)
    assert float(line["budget_time_high_s"]) == pytest.approx(HIGH_S, rel=1e-4)
    assert float(line["budget_usd"]) == pytest.approx(1e6 / 3600 * devices * 2)
    assert float(line["budget_usd_high"]) == pytest.approx(HIGH_S / 3600 * devices * 2, rel=1e-4)
    assert "budget_time_s" not in lines(build_report([run]))[0]


def test_one_repeat_has_no_interval(make_run):
    report = budget("tokens=1e9", make_run(metrics={"tokens_per_s": Metric(mean=1000.0, std_within_run=10.0)}))
    assert lines(report)[0]["budget_time_low_s"] == ""
    assert "interval" not in "".join(report.sections[0].asked_tables[0].legend)


def test_padding_is_no_token_of_the_training(make_run):
    (line,) = lines(budget("tokens=1e9", make_run(metrics={"tokens_per_s": 1000.0, "real_tokens_per_s": 500.0})))
    assert float(line["budget_time_s"]) == pytest.approx(2e6)


def test_epochs_go_by_the_time_of_one(make_run):
    (line,) = lines(budget("epochs=3", make_run(metrics={"tokens_per_s": 1000.0, "epoch_time_s": 7.0})))
    assert float(line["budget_time_s"]) == pytest.approx(21)


def test_energy_is_the_mean_power_over_the_time(make_run):
    (line,) = lines(budget("tokens=1e9", make_run(metrics={"tokens_per_s": 1000.0, "mean_power_w": 36.0})))
    assert float(line["budget_energy_kwh"]) == pytest.approx(10)


def test_it_is_in_markdown_latex_and_on_the_page(make_run):
    report = budget("tokens=1e9", make_run(metrics={"tokens_per_s": RATE}, **PRICED), make_run("F", "oom"))
    for text in (markdown(report), latex(report), page(report)):
        assert "1e9 tokens, by these speeds" in text
        assert "11 d 14 h" in text
        assert "Student's t" in text or "Student&#39;s t" in text
    assert markdown(report).count("11 d 14 h") == 1


def test_what_no_run_can_say_is_an_error(make_run):
    with pytest.raises(ConfigError, match=r"--for epochs=3: the data of these runs has no epochs"):
        budget("epochs=3", make_run(metrics={"tokens_per_s": 1.0}))
    with pytest.raises(ConfigError, match=r"--for tokens=1e9: none of these runs has a measured speed"):
        budget("tokens=1e9", make_run("F", "oom"))
