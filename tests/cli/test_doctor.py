from __future__ import annotations

import pytest

from llmexp.doctor.finding import Finding
from llmexp.record.installed import Installed


def test_a_line_for_everything_that_is_checked(llmexp, here):
    code, out, err = llmexp("doctor", "--outputs", "somewhere/else")
    lines = out.splitlines()
    assert " ".join(line.split()[1] for line in lines) == (
        "python hardware bf16 torch deepspeed libraries optional compiler outputs cache store ports slurm memory load "
        "governor"
    )
    assert {line.split()[0] for line in lines} <= {"ok", "warn", "fail"}
    assert code == ("fail" in [line.split()[0] for line in lines])
    assert "somewhere/else: " in out
    assert err == ""
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(("levels", "code"), [(("ok", "warn"), 0), (("fail", "ok"), 1)])
def test_only_what_fails_makes_it_fail(llmexp, monkeypatch, levels, code):
    monkeypatch.setattr(
        "llmexp.cli.commands.doctor.examine", lambda outputs: [Finding(level, "thing", "do this") for level in levels]
    )
    assert llmexp("doctor") == (code, "".join(f"{level:<4}  thing      do this\n" for level in levels), "")


def lines(out: str) -> dict[str, tuple[str, str]]:
    """Level and text of each line, by what it is about."""
    return {what: (level, says) for level, what, says in (line.split(maxsplit=2) for line in out.splitlines())}


def test_words_of_a_run_say_what_that_run_needs(llmexp, here, monkeypatch):
    monkeypatch.setattr("llmexp.launch.preflight.Runtime.installed", Installed(python="3.11.9", missing=("peft",)))
    code, out, err = llmexp(
        "doctor",
        "task=finetune",
        "method=QL",
        "engine=torch",
        "hardware=h100",
        "sweep.outputs=somewhere/else",
        "tracking=none",
    )
    found = lines(out)
    assert (code, err) == (1, "")
    assert found["hardware"] == (
        "fail",
        "hardware=h100 does not match this node: it needs 8 x NVIDIA H100 80GB HBM3, and no GPU is visible here",
    )
    assert found["engine"][0] == "fail"
    assert "engine=torch with method=QL, data=instructions needs peft: pip install" in found["engine"][1]
    assert found["outputs"][1].startswith("somewhere/else: ")
    assert "store" not in found
    assert list(here.iterdir()) == []


def test_a_run_that_can_start_here_fails_nowhere(llmexp, monkeypatch):
    monkeypatch.setattr("llmexp.launch.preflight.Runtime.installed", Installed(python="3.11.9"))
    _, out, _ = llmexp("doctor", "method=Naive,F", "model=tiny", "hardware=cpu", "tracking=none")
    assert [
        line.split()[0] for line in out.splitlines() if line.split()[1] in ("hardware", "engine", "compiler", "run")
    ] == ["ok"] * 5
    assert "pretrain tiny F is supported" in out


def test_a_run_that_compiles_needs_a_compiler(llmexp, monkeypatch):
    monkeypatch.setattr("llmexp.launch.preflight.Runtime.installed", Installed(python="3.11.9"))
    code, out, _ = llmexp("doctor", "method=C", "model=tiny", "hardware=cpu", "tracking=none")
    assert (code, lines(out)["compiler"][0]) == (1, "fail")
    assert "C: torch.compile compiles in the ranks, and this machine has no C++ compiler" in lines(out)["compiler"][1]


def test_runs_by_slurm_need_its_commands_and_not_this_machines_hardware(llmexp, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, _ = llmexp("doctor", "hydra/launcher=slurm", "hardware=h100", "model=tiny", "tracking=none")
    found = lines(out)
    assert (code, found["slurm"][0], found["hardware"][0]) == (1, "fail", "ok")
    assert "sbatch" in found["slurm"][1]


def test_wrong_words_of_a_run_are_one_line(llmexp):
    code, out, err = llmexp("doctor", "engine=torhc")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "did you mean torch?" in err
