import pytest

from llmexp.record.result import Metric
from llmexp.report.columns import Column
from llmexp.report.table import build_report
from llmexp.report.terminal import part_same, print_report

MEASURED = {
    "tokens_per_s": Metric(mean=7123.4, std_between_repeats=123.4, n=3),
    "peak_allocated_bytes": 66e9,
    "step_time_s": 0.4,
    "mfu": 0.4,
    "tflops_per_s_per_gpu": 124.0,
}
MODEL = Column("model", ("7b", "7b"), left=True)
METHOD = Column("method", ("F", "R"), left=True)
RATE = Column("tokens/s", ("1", "1"))
MFU = Column("MFU\u00a0%", ("40.0", "40.0"), dispensable=6)


@pytest.fixture
def report(make_run):
    methods = ("Naive", "F+R+Z3+O", "Q")
    return build_report(
        [make_run(method, metrics=MEASURED, model__name="7b", hardware__name="a800") for method in methods]
    )


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_table_fits_and_says_above_what_is_the_same(report, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    print_report(report)
    lines = capsys.readouterr().out.splitlines()
    rule = next(number for number, line in enumerate(lines) if "───" in line)
    (answer,) = report.sections[0].leaders
    table = lines[lines.index(answer) + 1 : rule + 4]
    assert max(len(line) for line in table) <= max(width, 60)
    assert len(lines[rule]) <= 100
    assert [line.split()[1] for line in lines[rule + 1 : rule + 4]] == ["Naive", "F+R+Z3+O", "Q†"]
    assert "7,120 ± 120" in lines[rule + 1]
    assert "same in every row: model 7b; " in " ".join(lines[1:rule])


def test_a_run_is_repeated_by_the_shared_words_and_its_method(report, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    print_report(report)
    last = capsys.readouterr().out.splitlines()[-1]
    words = "python -m llmexp model.name=7b hardware.name=a800"
    assert last == f"to repeat a run, add its method, such as method=Naive: {words}"


def test_reasons_are_printed_as_they_are(make_run, capsys):
    print_report(build_report([make_run(status="failed", reason="[bold]list[0][/bold] at 3")]))
    assert "(1) [bold]list[0][/bold] at 3" in capsys.readouterr().out.splitlines()


def test_what_differs_and_what_always_stays_is_shown():
    assert part_same([MODEL, METHOD, RATE, MFU]) == ([METHOD, RATE], "same in every row: model 7b; MFU % 40.0")


def test_one_row_keeps_its_columns():
    alone = [Column("model", ("7b",), left=True)]
    assert part_same(alone) == (alone, "")
