from __future__ import annotations

import pytest

from llmexp.doctor.finding import Finding


def test_a_line_for_everything_that_is_checked(llmexp, here):
    code, out, err = llmexp("doctor", "--outputs", "somewhere/else")
    lines = out.splitlines()
    assert " ".join(line.split()[1] for line in lines) == (
        "python hardware torch deepspeed libraries optional compiler outputs cache store ports slurm memory governor"
    )
    assert {line.split()[0] for line in lines} <= {"ok", "warn", "fail"}
    assert code == ("fail" in [line.split()[0] for line in lines])
    assert "somewhere/else: " in out
    assert err == ""
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(("levels", "code"), [(("ok", "warn"), 0), (("fail", "ok"), 1)])
def test_only_what_fails_makes_it_fail(llmexp, monkeypatch, levels, code):
    monkeypatch.setattr("llmexp.cli.doctor.examine", lambda outputs: [Finding(level, "thing", "do this") for level in levels])
    assert llmexp("doctor") == (code, "".join(f"{level:<4}  thing      do this\n" for level in levels), "")
