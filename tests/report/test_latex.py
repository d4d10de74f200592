"""The LaTeX form: rules of booktabs, as many cells in each line as columns, and nothing that LaTeX obeys in texts."""

import re

from llmexp.record.result import Metric, Stability
from llmexp.report.latex import escaped, latex
from llmexp.report.setup_paragraph import setup_paragraph
from llmexp.report.table import build_report
from llmexp.report.text import markdown


def test_the_table_has_the_rules_of_booktabs_and_whole_lines(make_run):
    report = build_report([make_run("F", metrics={"tokens_per_s": 1234.5}), make_run("Z2", status="oom")])
    text = latex(report)
    kinds = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1]
    places = [text.index(word) for word in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}", r"\end{table}")]
    assert places == sorted(places)
    lines = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert len(lines) == 3
    assert all(len(re.findall(r"(?<!\\)&", line)) == len(kinds) - 1 for line in lines)
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert r"bf16\_mixed" in text or r"fp32" in text
    assert not re.search(r"(?<!\\)[_#]", text.partition("\n")[2])
    assert "1,230" in text


def test_what_latex_obeys_is_printed():
    assert escaped("5 % of a_b & c#1 {x} $y$ ~ ^ \\input") == (
        r"5 \% of a\_b \& c\#1 \{x\} \$y\$ \textasciitilde{} \textasciicircum{} \textbackslash{}input"
    )
    assert escaped("1 ± 2 †") == r"1 $\pm$ 2 $\dagger$"


def test_no_runs_are_a_comment():
    assert latex(build_report([])) == "% No runs\n"


def test_the_setup_names_what_was_measured_and_is_empty_without_it(make_run):
    report = build_report([make_run("F", metrics={"tokens_per_s": 1.0}), make_run("R", status="oom")])
    said = setup_paragraph(report.sections[0])
    assert said.startswith("We measured model tiny; method F. Hardware cpu;")
    assert "R" not in re.findall(r"method ([^.]*)\.", said)[0].split(", ")
    assert setup_paragraph(build_report([make_run("Z3", status="oom")]).sections[0]) == ""


def test_what_the_table_answers_stands_with_it_in_every_form(make_run):
    steady = Stability(verdict="stable", reasons=[], drift_ratio=1.0, warmup_ratio=1.0)
    speeds = {"Naive": 100.0, "R": 70.0}
    metrics = {
        method: {"tokens_per_s": Metric(mean=mean, std_between_repeats=1.0, n=3)} for method, mean in speeds.items()
    }
    report = build_report([make_run(method, metrics=metrics[method], stability=steady) for method in speeds])
    for form in (latex(report), markdown(report)):
        assert "fastest" in form
        assert "slower than Naive: R" in form
        assert ".." not in form
