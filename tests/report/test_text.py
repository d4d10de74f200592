import csv
import io

import pytest
from made_up_tokens import TOKENS

from llmexp.record.result import Metric, SmClock, Stability
from llmexp.report.table import build_report
from llmexp.report.terminal import print_report
from llmexp.report.text import comma_separated, markdown
from llmexp.training.metrics import METRICS


def read(report):
    return list(csv.DictReader(io.StringIO(comma_separated(report))))


def test_every_metric_that_is_measured_has_columns(make_run):
    [row] = read(build_report([make_run()]))
    assert METRICS.keys() <= row.keys()


def test_csv_holds_raw_values_and_ends_with_the_command(make_run):
    metrics = {"tokens_per_s": Metric(mean=3744.15, std_between_repeats=1.5, n=3), "peak_allocated_bytes": 33.35e9}
    pure = {"name": "bf16_pure", **dict.fromkeys(("parameters", "gradients", "master", "moments"), "bf16")}
    ours = make_run("Naive", metrics=metrics, model__name="7b", hardware__name="a800", precision=pure)
    row, failed = read(build_report([ours, make_run("Q", "failed", reason="a, b")]))
    assert float(row["tokens_per_s"]) == 3744.15
    assert float(row["tokens_per_s_std_between_repeats"]) == 1.5
    assert row["tokens_per_s_std_within_run"] == ""
    assert float(row["peak_allocated_bytes"]) == 33.35e9
    assert float(row["tokens_per_s_over_paper"]) == 0.5
    assert (row["paper_table"], row["paper_oom"], row["processes"], row["full_pretraining"]) == (
        "III",
        "False",
        "8",
        "True",
    )
    assert list(row)[-1] == "command"
    assert row["command"].startswith("python -m llmexp method=Naive model.name=7b hardware.name=a800 ")
    assert (failed["state"], failed["reason"], failed["tokens_per_s"], failed["full_pretraining"]) == (
        "failed",
        "a, b",
        "",
        "False",
    )


@pytest.mark.parametrize("issuer", TOKENS)
def test_no_known_form_of_a_token_is_reported(make_run, issuer):
    report = build_report(
        [make_run("Q", "failed", reason=f"refused, with {TOKENS[issuer]} and http://me:hunter2@host, twice")]
    )
    [row] = read(report)
    assert row["reason"] == "refused, with *** and http://***@host, twice"
    assert TOKENS[issuer] not in markdown(report)


def test_csv_has_the_verdict_and_the_interval(make_run):
    judged = Stability(verdict="unstable", reasons=["drift: x", "noise: y"], low=90.0, high=110.0, source="steps")
    unstable, unjudged = read(
        build_report([make_run(metrics={"tokens_per_s": 100.0}, stability=judged), make_run("F", "oom")])
    )
    assert (unstable["stability"], unstable["stability_reasons"], unstable["interval_source"]) == (
        "unstable",
        "drift: x; noise: y",
        "steps",
    )
    assert (float(unstable["tokens_per_s_low"]), float(unstable["tokens_per_s_high"])) == (90.0, 110.0)
    assert (unjudged["stability"], unjudged["tokens_per_s_low"]) == ("", "")


def test_neighbors_are_a_note_of_the_row_and_they_and_clocks_are_in_the_csv(make_run, capsys):
    clocks = [
        SmClock(gpu=f"GPU {n}", mean_megahertz=mean, lowest_megahertz=mean - 9, card_megahertz=1980, samples=3)
        for n, mean in enumerate((1900, 1500))
    ]
    one = Stability(verdict="stable", concurrent_runs=["tiny_R_0123456789ab"], sm_clocks=clocks)
    many = Stability(verdict="unstable", reasons=["drift: x"], concurrent_runs=[f"run_{number}" for number in range(6)])
    report = build_report(
        [
            make_run(metrics={"tokens_per_s": 5.0}, stability=one),
            make_run("F", metrics={"tokens_per_s": 6.0}, stability=many),
        ]
    )
    print_report(report)
    shared = "on the same machine: they share power, fans and the host"
    for text in (markdown(report), capsys.readouterr().out):
        assert " 5.00 (1)" in text
        assert " 6.00 ! (2) (3)" in text
        assert f"(1) measured beside 1 other run (tiny_R_0123456789ab) {shared}" in " ".join(text.split())
        assert f"(3) measured beside 6 other runs (run_0, run_1, run_2, run_3 and 2 more) {shared}" in " ".join(
            text.split()
        )
    first, second = read(report)
    assert (first["concurrent_runs"], second["concurrent_runs"]) == (
        "tiny_R_0123456789ab",
        "; ".join(f"run_{number}" for number in range(6)),
    )
    names = ("sm_clock_mean_megahertz", "sm_clock_lowest_megahertz", "sm_clock_card_megahertz")
    assert [float(first[name]) for name in names] == [1500, 1491, 1980]
    assert [second[name] for name in names] == ["", "", ""]


def capped(mean, share, gpu=0):
    cap = {"power_cap_watts": 700, "share_at_power_cap": share}
    return SmClock(gpu=f"GPU {gpu}", mean_megahertz=mean, lowest_megahertz=mean, card_megahertz=1980, samples=3, **cap)


def test_a_rate_at_the_power_cap_has_a_note_with_the_clock(make_run):
    held, free = [capped(1620, 0.98), capped(1505, 1.0, gpu=1)], [capped(1965, 0.04)]
    runs = [
        make_run(method, metrics={"tokens_per_s": 5.0}, stability=Stability(verdict="stable", sm_clocks=clocks))
        for method, clocks in (("F", held), ("R", free))
    ]
    text = markdown(build_report(runs))
    assert "| F | 5.00 (1) |" in text
    assert "| R | 5.00 |" in text
    said = "100 % of the window at the card's power cap of 700 W; its clock was 1,505 of 1,980 MHz on average"
    assert f"(1) power: {said}, the slowest of 2 GPUs" in text


def test_a_table_for_others_does_not_tell_where_the_records_went(make_run):
    run = make_run("F", metrics={"tokens_per_s": 5.0}, sweep__outputs="/scratch/my runs", sweep__name="mine")
    text = markdown(build_report([run]))
    assert "sweep.name=mine" in text
    assert "sweep.outputs" not in text


def test_csv_of_a_planned_run(make_run):
    row = read(build_report([make_run(status=None)]))[0]
    assert (row["state"], row["stack"], row["repeats"]) == ("planned", "", "0")


def test_markdown_is_one_table_with_legend_and_notes(make_run):
    folders = make_run(metrics={"tokens_per_s": 5.0}), make_run("F", "skipped", reason="no room"), make_run("R", "oom")
    lines = markdown(build_report(folders)).splitlines()
    assert lines[0].startswith("## pretrain, tiny, on cpu")
    table = [line for line in lines if line.startswith("|")]
    assert table[0].endswith("| command |")
    assert {line.count("|") for line in table} == {table[0].count("|")}
    assert table[2].endswith("| `python -m llmexp method=Naive` |")
    assert "- -: out of memory" in lines
    assert lines[-1].strip() == "(1) no room"


@pytest.mark.parametrize(
    ("verdict", "sign", "words"), [("unstable", "!", "unstable"), ("unknown", "?", "stability unknown")]
)
def test_markdown_and_the_terminal_mark_what_cannot_be_relied_on_and_csv_has_the_verdict(
    make_run, capsys, verdict, sign, words
):
    report = build_report(
        [make_run(metrics={"tokens_per_s": 5.0}, stability=Stability(verdict=verdict, reasons=["too few"]))]
    )
    print_report(report)
    for text, cell in ((markdown(report), f"| 5.00 {sign} (1) |"), (capsys.readouterr().out, f" 5.00 {sign} (1)")):
        assert cell in text
        assert f"(1) {words}: too few" in text
    assert (read(report)[0]["stability"], read(report)[0]["stability_reasons"]) == (verdict, "too few")
