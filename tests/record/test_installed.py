from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from llmexp.record import installed
from llmexp.record.installed import answer, look, question, version_of, versions


def test_another_python_answers_as_this_one_does_whatever_is_printed_before():
    asked = (["pydantic", "no-such-distribution"], ["json", "no_such_module"])
    command = ["sh", "-c", 'echo "Loading cuda/12.4"; exec "$@"', "sh", sys.executable, *question(*asked)]
    assert answer(subprocess.run(command, capture_output=True, text=True, check=True).stdout) == look(*asked)


def test_what_is_missing_is_named_and_what_is_not_installed_has_no_version():
    found = look(["pydantic", "no-such-distribution"], ["json", "no_such_module"])
    assert found.missing == ("no_such_module",)
    assert found.distributions.keys() == {"pydantic"} == versions(["pydantic"]).keys()
    assert version_of(found.python) == sys.version_info[:2]


def test_no_answer_is_none():
    assert answer("bash: python: command not found\n") is None


def test_extras_are_installed_from_the_checkout_or_with_the_wheel(monkeypatch, tmp_path):
    root = Path(__file__).parents[2]
    assert installed.installs("slurm") == f"pip install '.[slurm]' in {root}"
    monkeypatch.setattr(installed, "__file__", str(tmp_path / "llmexp" / "record" / "installed.py"))
    assert installed.installs("slurm").startswith("pip install 'llmexp[slurm]' --find-links ")
