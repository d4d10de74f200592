from __future__ import annotations

from llmexp.report.provenance import provenance
from llmexp.report.table import build_report
from llmexp.report.text import markdown

H200 = {
    "device_type": "cuda",
    "torch": "2.13.0+cu130",
    "cuda": "13.0",
    "nccl": "2.28.9",
    "python": "3.12.3",
    "distributions": {"deepspeed": "0.19.8", "mlflow": "3.17.2"},
    "nvidia": {"driver_version": "580.95", "devices": [{"name": "NVIDIA H200"}] * 2},
    "git": {"llmexp": {"commit": "0123456789abcdef", "dirty": False}},
}


def on(run, environment, day):
    result = run.result()
    run.write(
        run.result_path, result.model_copy(update={"environment": environment, "ended_at": f"{day}T10:00:00.000+00:00"})
    )
    return run


def test_an_environment_is_one_line_with_its_days(make_run):
    runs = [on(make_run("F"), H200, "2026-01-02"), on(make_run("R"), H200, "2026-01-05")]
    expected = (
        "measured on 2 x NVIDIA H200, driver 580.95, torch 2.13.0+cu130, cuda 13.0, nccl 2.28.9, python 3.12.3, "
        "deepspeed 0.19.8, "
        "commit 0123456789ab; 2026-01-02 to 2026-01-05"
    )
    assert provenance(build_report(runs).rows) == [expected]
    assert f"- {expected}\n" in markdown(build_report(runs))


def test_each_environment_has_its_own(make_run):
    laptop = {"device_type": "cpu", "torch": "2.13.0", "cpu": {"model": "A CPU", "usable_cores": 2}}
    runs = [on(make_run("F"), H200, "2026-01-02"), on(make_run("R"), laptop, "2026-01-05")]
    assert provenance(build_report(runs).rows)[1] == "measured on 2 cores of A CPU, torch 2.13.0; 2026-01-05"


def test_uncommitted_changes_are_said(make_run):
    changed = H200 | {"git": {"llmexp": {"commit": "0123456789abcdef", "dirty": True}}}
    assert (
        "commit 0123456789ab with uncommitted changes; "
        in provenance(build_report([on(make_run("F"), changed, "2026-01-02")]).rows)[0]
    )


def test_what_was_not_measured_says_nothing(make_run):
    assert provenance(build_report([make_run("F", None), make_run("R")]).rows) == []
